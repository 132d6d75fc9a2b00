// SPDX-License-Identifier: Apache-2.0
#include "cli/deck_plan.hpp"

#include <algorithm>
#include <functional>

#include "device/cuda/handle.hpp"
#include "device/device.hpp"

#include "comm/collective/traffic.hpp"
#include "ops/attention.hpp"

#include "reduce/layout_options.hpp"
#include "reduce/leaves.hpp"

#include "model/gpt.hpp"

#include "session/machine.hpp"
#include "session/saver.hpp"

namespace trireme::cli {
namespace {

using trireme::session::Precision;

/// Requires: `plan` has everything but budgets.
layout::BudgetOptions budget_options(const deck::JobConfig& config,
                                     const DeckPlan& plan,
                                     DType parameter_dtype) {
  layout::BudgetOptions options{
      .parameter_dtype = parameter_dtype,
      .shard = plan.shard,
      .wire_dtype = reduce::dtype_of(config.parallel.gradient_dtype),
      .partial_sums =
          reduce::num_waiting_sums(reduce::leaves_per_rank(config.parallel, plan.plan.all_ranks())),
      .snapshot = trireme::session::holds_snapshot(config.checkpoint, plan.device)};
  options.prefetch = config.parallel.gathered_ahead();
  options.ordered = config.parallel.reduction != comm::Reduction::sum;
  if (config.parallel.reduces_micro_steps())
    options.micro_step_reductions = plan.reductions_per_step;
  return options;
}

/// Of the host that sends most. Formulas are linear in the shard, so all buckets are one.
DeckPlan::HostTraffic host_traffic(const deck::JobConfig& config,
                                   const DeckPlan& plan,
                                   comm::Transport transport,
                                   const comm::Hosts& hosts,
                                   DType parameter_dtype) {
  const std::int64_t times = plan.reductions_per_step;
  const int replicas = plan.plan.replicas();
  if (transport == comm::Transport::nccl || (replicas == 1 && transport != comm::Transport::mpi &&
                                             transport != comm::Transport::hierarchical))
    return {};
  const std::int64_t shard = plan.plan.owned_elements();
  const std::int64_t gathered_shards =
      budget_options(config, plan, parameter_dtype).gathered_elements(plan.plan) /
      plan.plan.ranks();
  const DType wire = reduce::dtype_of(config.parallel.gradient_dtype);
  if (replicas > 1)
    return {times * std::ranges::max(comm::replicated_reduce_traffic(
                        transport, config.parallel.reduction, wire, hosts, replicas, shard)),
            std::ranges::max(comm::replicated_gather_traffic(transport, parameter_dtype, hosts,
                                                             replicas, gathered_shards))};
  auto gradients =
      comm::reduce_scatter_traffic(transport, config.parallel.reduction, wire, hosts, shard);
  const auto gathered =
      plan.sharded() ? comm::all_gather_traffic(transport, parameter_dtype, hosts, gathered_shards)
                     : comm::all_gather_traffic(transport, wire, hosts, shard);
  if (plan.sharded())
    return {times * std::ranges::max(gradients), std::ranges::max(gathered)};
  std::ranges::transform(gradients, gathered, gradients.begin(), std::plus{});
  return {times * std::ranges::max(gradients), 0};
}

/// The host of each rank of the first replica.
std::vector<int> first_replica(const layout::Plan& plan, const comm::Hosts& hosts) {
  std::vector<int> host_of;
  for (int rank = 0; rank < plan.ranks(); ++rank) host_of.push_back(hosts.host_of(rank));
  return host_of;
}

/// Of the largest micro-batch's attention, and of matrix products.
std::int64_t gpu_workspace(const deck::Deck& deck, DType dtype) {
  const deck::JobConfig& config = deck.config;
  return static_cast<std::int64_t>(
      device::cuda::workspace_bytes +
      ops::Attention::gpu_scratch_bytes(
          model::attention_shape(deck.shape(), 0, dtype, config.batch.micro_sequences),
          {.deterministic = config.gpu.deterministic_attention}));
}

}  // namespace

deck::Deck parse_for_plan(const std::string& deck_path,
                          const std::vector<std::string>& overrides,
                          deck::Circumstances circumstances) {
  circumstances.trains = false;
  return deck::parse(deck::read_deck_file(deck_path), deck_path, overrides, circumstances);
}

DeckPlan plan_of(const deck::Deck& deck, int ranks, int hosts) {
  const deck::JobConfig& config = deck.config;
  const auto kind = trireme::session::choose_kind(config.run.device, device::count_cuda_devices());
  trireme::session::expect_served(config.optimizer.kind, kind);
  const auto wire = kind == device::Kind::cuda ? reduce::Wire::gpus
                    : hosts == 1               ? reduce::Wire::inside_a_host
                                               : reduce::Wire::between_hosts;
  const auto parameters = model::parameter_table(deck.shape());
  const int copies =
      config.parallel.sharded() ? reduce::replicas(config.parallel, ranks, hosts) : 1;
  DeckPlan result{layout::Plan(parameters, reduce::layout_options(config.parallel, parameters,
                                                                  ranks, wire, copies)),
                  config.parallel.shard,
                  {},
                  {},
                  {},
                  kind,
                  {},
                  optim::state_slots(config.optimizer),
                  optim::resolve_groups(config.optimizer, parameters),
                  hosts,
                  {},
                  {},
                  {}};
  result.schedule = report::schedule_table(
      {.optimizer = config.optimizer,
       .groups = result.groups,
       .steps = config.run.steps,
       .schedule_steps = config.optimizer.schedule.steps.value_or(config.run.steps),
       .sizes = config.batch.sizes(),
       .context = deck.shape().context});
  result.matrices = optim::matrix_work(result.plan, config.optimizer, result.sharded());
  const auto placed = comm::Hosts::in_blocks(ranks, hosts);
  if (result.matrices)
    result.host_matrix_bytes = optim::matrix_bytes_between(placed, result.plan, *result.matrices);
  comm::Transport transport = config.parallel.transport;
  if (transport == comm::Transport::automatic)
    transport = result.device == device::Kind::cuda
                    ? comm::Transport::nccl
                    : comm::transport_for(comm::Hosts(first_replica(result.plan, placed)));
  result.transport = word(transport);
  result.bucket_text = reduce::bucket_text(config.parallel, result.plan);
  if (config.run.precision != Precision::bf16)
    result.dtypes.push_back(DType::f32);
  if (config.run.precision != Precision::fp32)
    result.dtypes.push_back(DType::bf16);
  if (config.parallel.reduces_micro_steps())
    result.reductions_per_step = most_micro_steps(config.batch, ranks);
  for (const DType dtype : result.dtypes) {
    const layout::BudgetOptions options = budget_options(config, result, dtype);
    layout::Budget& budget =
        result.budgets.emplace_back(layout::budget_of(result.plan, result.slots, options));
    if (result.matrices) {
      budget.matrix_bytes = result.matrices->bytes();
      budget.matrix_wire_bytes = result.matrices->sent_bytes;
    }
    if (transport == comm::Transport::shared_memory || transport == comm::Transport::hierarchical)
      budget.peer_bytes = layout::peer_bytes(
          result.plan, options,
          std::min(result.plan.ranks(), static_cast<int>(placed.members(0).size())));
    result.activations.push_back(
        model::activation_plan(deck.shape(), dtype, config.batch.micro_sequences, result.device));
    const bool gpu = result.device == device::Kind::cuda;
    result.workspaces.push_back(gpu ? gpu_workspace(deck, dtype) : 0);
    result.host_traffic.push_back(host_traffic(config, result, transport, placed, dtype));
  }
  return result;
}

DeckPlan plan_with_choices(const deck::Deck& deck, int ranks, int hosts) {
  DeckPlan result = plan_of(deck, ranks, hosts);
  const bool copies = result.plan.replicas() > 1;
  for (const auto& [shard, name] : EnumNames<layout::Shard>::table) {
    DeckPlan::Sharding& one = result.shardings.emplace_back();
    one.shard = shard;
    if ((layout::shards_gradients(shard) && !deck.config.parallel.can_shard_gradients()) ||
        (copies && shard == layout::Shard::none))
      continue;
    deck::Deck other = deck;
    other.config.parallel.shard = shard;
    if (layout::shards_gradients(shard))
      other.config.parallel.reduce_every = reduce::ReduceEvery::automatic;
    one.budgets = plan_of(other, ranks, hosts).budgets;
  }
  return result;
}

std::int64_t whole_bytes(const DeckPlan& plan, std::size_t dtype) {
  return plan.budgets[dtype].held_bytes() +
         static_cast<std::int64_t>(plan.activations[dtype].bytes()) +
         static_cast<std::int64_t>(plan.activations[dtype].scratch().bytes()) +
         plan.workspaces[dtype];
}

std::int64_t most_micro_steps(const trireme::session::BatchConfig& batch, int ranks) {
  return data::Batches{batch.sizes().largest(), batch.micro_sequences, ranks}.micro_steps();
}

}  // namespace trireme::cli
