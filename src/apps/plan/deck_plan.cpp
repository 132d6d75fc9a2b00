// SPDX-License-Identifier: Apache-2.0
#include "plan/deck_plan.hpp"

#include <algorithm>
#include <functional>
#include <utility>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/text.hpp"
#include "device/device.hpp"

#include "model/gpt.hpp"

#include "comm/collective/traffic.hpp"
#include "reduce/compression.hpp"
#include "reduce/layout_options.hpp"

#include "optim/rule.hpp"
#include "session/machine.hpp"
#include "session/plan_of.hpp"

namespace trireme::plan {
namespace {

using session::Precision;

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
      session::budget_options(config, plan.plan, {parameter_dtype, plan.device})
          .gathered_elements(plan.plan) /
      plan.plan.ranks();
  const DType wire = reduce::dtype_of(config.parallel.gradient_dtype);
  if (config.parallel.compresses() && hosts.ranks() > 1) {
    // Every rank sends the same to each other rank.
    std::int64_t most = 0;
    for (int host = 0; host < hosts.count(); ++host) {
      const auto here = static_cast<std::int64_t>(hosts.members(host).size());
      most = std::max(most, here * (hosts.ranks() - here));
    }
    std::int64_t sent = 0;
    for (const layout::Bucket& bucket : plan.plan.buckets())
      sent += reduce::compressed_bytes(config.parallel, plan.plan, bucket);
    return {times * most * sent / (hosts.ranks() - 1),
            plan.sharded() ? std::ranges::max(comm::all_gather_traffic(transport, parameter_dtype,
                                                                       hosts, gathered_shards))
                           : 0};
  }
  if (replicas > 1) {
    const auto reduced = [&](DType dtype, comm::ReplicaPart part) {
      return std::ranges::max(comm::replicated_reduce_traffic(transport, config.parallel.reduction,
                                                              dtype, hosts, replicas, shard, part));
    };
    const std::int64_t gathered = std::ranges::max(comm::replicated_gather_traffic(
        transport, parameter_dtype, hosts, replicas, gathered_shards));
    if (!config.optimizer.outer.on())
      return {times * reduced(wire, comm::ReplicaPart::all), gathered};
    return {times * reduced(wire, comm::ReplicaPart::inside) +
                optim::averaged_states(config.optimizer) *
                    reduced(DType::f32, comm::ReplicaPart::across),
            gathered};
  }
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
  host_of.reserve(static_cast<std::size_t>(plan.ranks()));
  for (int rank = 0; rank < plan.ranks(); ++rank) host_of.push_back(hosts.host_of(rank));
  return host_of;
}

}  // namespace

DeckPlan plan_of(const deck::Deck& deck, int ranks, int hosts) {
  const deck::JobConfig& config = deck.config;
  const auto kind = session::choose_kind(config.run.device, device::count_cuda_devices());
  const auto wire = kind == device::Kind::cuda ? reduce::Wire::gpus
                    : hosts == 1               ? reduce::Wire::inside_a_host
                                               : reduce::Wire::between_hosts;
  const int replicas =
      config.parallel.sharded() ? reduce::replicas(config.parallel, ranks, hosts) : 1;
  DeckPlan result{
      .plan = session::plan_of(config.parallel, deck.shape(), ranks, wire, replicas),
      .shard = config.parallel.shard,
      .device = kind,
      .slots = optim::state_slots(config.optimizer),
      .groups = optim::resolve_groups(config.optimizer, model::parameter_table(deck.shape())),
      .hosts = hosts};
  result.schedule =
      schedule_table({.optimizer = config.optimizer,
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
  result.transport = transport;
  result.bucket_text = reduce::bucket_text(config.parallel, result.plan);
  if (config.run.precision != Precision::bf16)
    result.dtypes.push_back(DType::f32);
  if (config.run.precision != Precision::fp32)
    result.dtypes.push_back(DType::bf16);
  if (config.parallel.reduces_micro_steps())
    result.reductions_per_step = session::most_micro_steps(config, ranks);
  else
    result.reductions_per_step = config.optimizer.outer.local_steps;
  for (const DType dtype : result.dtypes) {
    const session::RankKind of_a_rank{dtype, result.device};
    layout::Budget& budget =
        result.budgets.emplace_back(session::budget_of(config, result.plan, of_a_rank));
    if (transport == comm::Transport::shared_memory || transport == comm::Transport::hierarchical)
      budget.peer_bytes = layout::peer_bytes(
          result.plan, session::budget_options(config, result.plan, of_a_rank),
          std::min(result.plan.ranks(), static_cast<int>(placed.members(0).size())));
    model::GptShape shape = deck.shape();
    const session::RankNeeds needs{config, shape, result.plan, of_a_rank};
    result.workspaces.push_back(session::workspace_bytes(needs));
    result.graphs.push_back(session::graph_bytes(needs));
    result.recompute.push_back(session::decide_recompute(needs));
    shape.recompute = result.recompute.back().recompute;
    result.activations.push_back(
        model::activation_plan(shape, dtype, config.batch.micro_sequences, result.device));
    result.host_traffic.push_back(host_traffic(config, result, transport, placed, dtype));
  }
  return result;
}

DeckPlan plan_with_choices(const deck::Deck& deck, int ranks, int hosts) {
  DeckPlan result = plan_of(deck, ranks, hosts);
  const bool replicas = result.plan.replicas() > 1;
  for (const auto& [shard, name] : EnumNames<layout::Shard>::table) {
    DeckPlan::Sharding& one = result.shardings.emplace_back();
    one.shard = shard;
    if ((layout::shards_gradients(shard) &&
         (!deck.config.parallel.can_shard_gradients() || deck.config.parallel.compresses())) ||
        (replicas && shard == layout::Shard::none))
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
         plan.workspaces[dtype] + plan.graphs[dtype];
}

void expect_room(const deck::Deck& deck, const DeckPlan& plan) {
  if (std::ranges::any_of(plan.recompute, &model::RecomputeChoice::fits))
    return;
  constexpr const char* key = "model.recompute";
  std::vector<Diagnostic> findings;
  for (std::size_t i = 0; i < plan.dtypes.size(); ++i)
    findings.push_back({deck.places.of(key), key,
                        session::too_little(deck.shape(), plan.recompute[i], plan.dtypes[i])});
  throw UserError(std::move(findings));
}

std::string recompute_text(const deck::Deck& deck, const DeckPlan& plan) {
  const Bytes* limit = deck.config.model.recompute.limit();
  if (limit == nullptr)
    return {};
  std::string text;
  for (std::size_t i = 0; i < plan.dtypes.size(); ++i) {
    const model::RecomputeChoice& choice = plan.recompute[i];
    text += fmt::format("recompute in {}: {}: {} of {}{}\n", name(plan.dtypes[i]),
                        model::recompute_text(choice.recompute), bytes_text(choice.bytes),
                        bytes_text(limit->count), choice.fits ? "" : ", which are too few");
  }
  return text;
}

}  // namespace trireme::plan
