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

#include "optim/local_steps.hpp"
#include "optim/rule.hpp"
#include "session/machine.hpp"
#include "session/rank_memory.hpp"

namespace trireme::plan {
namespace {

using session::Precision;

/// Pairs of one of a host's ranks and a rank of another host that owns the same shard in another
/// replica; maximum over the hosts.
std::int64_t most_between_replicas(const comm::Hosts& hosts, int replicas) {
  const int in_a_replica = hosts.ranks() / replicas;
  std::int64_t most = 0;
  for (int host = 0; host < hosts.count(); ++host) {
    std::int64_t pairs = 0;
    for (const int rank : hosts.members(host))
      for (int other = rank % in_a_replica; other < hosts.ranks(); other += in_a_replica)
        pairs += hosts.host_of(other) != host ? 1 : 0;
    most = std::max(most, pairs);
  }
  return most;
}

/// Of the host that sends most. Formulas are linear in the shard, so all buckets are one.
DeckPlan::HostTraffic host_traffic(const deck::JobConfig& config,
                                   const DeckPlan& plan,
                                   comm::Transport transport,
                                   const comm::Hosts& hosts,
                                   DType parameter_dtype) {
  if (transport == comm::Transport::nccl)
    return {};
  const int replicas = plan.plan.replicas();
  const std::int64_t times = plan.reductions_per_step, shard = plan.plan.owned_elements();
  const auto gathered = [&](DType dtype, std::int64_t elements) {
    return comm::gather_traffic(transport, dtype, hosts, replicas, elements);
  };
  DeckPlan::HostTraffic traffic;
  if (plan.sharded())
    traffic.parameter_bytes = std::ranges::max(gathered(
        parameter_dtype, session::budget_options(config, plan.plan, {parameter_dtype, plan.device})
                                 .gathered_elements(plan.plan) /
                             plan.plan.ranks()));
  if (config.parallel.encodes() && hosts.ranks() > 1) {
    // Every rank sends the same to each other rank, as between replicas of one rank.
    const std::int64_t most = most_between_replicas(hosts, hosts.ranks());
    std::int64_t sent = 0;
    for (const layout::Bucket& bucket : plan.plan.buckets())
      sent += reduce::compressed_bytes(config.parallel, plan.plan, bucket);
    traffic.gradient_bytes = times * most * sent / (hosts.ranks() - 1);
    return traffic;
  }
  const bool factors = config.parallel.gradient_rank.given();
  const std::int64_t summed =
      factors ? reduce::factor_elements(config.parallel, plan.plan) / hosts.ranks() : shard;
  const auto reduced = [&](DType dtype, comm::ReplicaPart part) {
    return comm::reduce_traffic(transport, config.parallel.reduction, dtype, hosts, replicas,
                                summed, part);
  };
  const DType wire = reduce::dtype_of(config.parallel.gradient_dtype);
  const bool local = config.optimizer.outer.on();
  auto gradients =
      reduced(wire, local || replicas == 1 ? comm::ReplicaPart::inside : comm::ReplicaPart::all);
  if (!plan.sharded() || factors)  // an all-reduce
    std::ranges::transform(gradients, gathered(wire, summed), gradients.begin(), std::plus{});
  traffic.gradient_bytes = times * std::ranges::max(gradients);
  if (local && config.optimizer.outer.encodes())
    traffic.gradient_bytes += most_between_replicas(hosts, replicas) *
                              optim::averaged_bytes(config.optimizer.outer, plan.plan) /
                              std::max(1, replicas - 1);
  else if (local)
    traffic.gradient_bytes += std::ranges::max(
        reduced(reduce::dtype_of(config.optimizer.outer.dtype), comm::ReplicaPart::across));
  return traffic;
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
  result.schedule = schedule_table(config, result.groups, deck.shape().context);
  result.matrices = optim::matrix_work(result.plan, config.optimizer, result.sharded());
  const auto placed = comm::Hosts::in_blocks(ranks, hosts);
  if (result.matrices)
    result.host_matrix_bytes = optim::matrix_bytes_between(placed, result.plan, *result.matrices);
  comm::Transport transport = config.parallel.transport;
  if (transport == comm::Transport::automatic) {
    std::vector<int> host_of;  // each rank of the first replica
    for (int rank = 0; rank < result.plan.ranks(); ++rank) host_of.push_back(placed.host_of(rank));
    transport = result.device == device::Kind::cuda ? comm::Transport::nccl
                                                    : comm::transport_for(comm::Hosts(host_of));
  }
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
    if (transport == comm::Transport::shared_memory || transport == comm::Transport::hierarchical) {
      const int on_a_host =
          std::min(result.plan.ranks(), static_cast<int>(placed.members(0).size()));
      budget.peer_bytes =
          layout::peer_bytes(result.plan, session::budget_options(config, result.plan, of_a_rank),
                             on_a_host) +
          (on_a_host - 1) * reduce::compression_bytes(config.parallel, result.plan).read;
    }
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
