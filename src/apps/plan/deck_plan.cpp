// SPDX-License-Identifier: Apache-2.0
#include "plan/deck_plan.hpp"

#include <algorithm>
#include <cmath>
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

namespace trireme::plan {
namespace {

using session::Precision;

/// Sent by the ranks of a host to those of others, if each rank sends `elements` to every other
/// rank: the most of a host.
std::int64_t most_between_hosts(const comm::Hosts& hosts, std::int64_t elements) {
  std::int64_t pairs = 0;
  for (int host = 0; host < hosts.count(); ++host) {
    const auto here = std::ssize(hosts.members(host));
    pairs = std::max(pairs, here * (hosts.ranks() - here));
  }
  return pairs * elements;
}

/// Sent by a host to others to average the replicas: the most of a host. `pair_bytes`: what a rank
/// that owns everything sends to one owner of another replica. The parts of all buckets are alike.
std::int64_t most_averaged(const comm::Hosts& hosts,
                           const layout::Plan& plan,
                           std::int64_t pair_bytes) {
  std::vector<std::int64_t> elements(static_cast<std::size_t>(hosts.count()));
  for (int rank = 0; rank < hosts.ranks(); ++rank)
    for (const layout::SharedPart& part : plan.shared_parts(BucketIndex{0}, rank))
      for (const int owner : part.owners)
        if (hosts.host_of(owner) != hosts.host_of(rank))
          elements[static_cast<std::size_t>(hosts.host_of(rank))] += part.elements;
  return std::llround(static_cast<double>(std::ranges::max(elements)) /
                      static_cast<double>(plan.buckets().front().elements) *
                      static_cast<double>(pair_bytes));
}

/// Of the host that sends most. Formulas are linear in the elements, so all buckets are one.
DeckPlan::HostTraffic host_traffic(const deck::JobConfig& config,
                                   const DeckPlan& plan,
                                   comm::Transport transport,
                                   const comm::Hosts& hosts,
                                   DType parameter_dtype) {
  if (transport == comm::Transport::nccl)
    return {};
  const layout::ReplicaRanks& replicas = plan.plan.replica_ranks();
  const std::int64_t times = plan.reductions_per_step;
  const auto gathered = [&](DType dtype, std::int64_t elements) {
    return comm::gather_traffic(transport, dtype, hosts, replicas, elements);
  };
  DeckPlan::HostTraffic traffic;
  if (plan.sharded())
    traffic.parameter_bytes = std::ranges::max(gathered(
        parameter_dtype, session::budget_options(config, plan.plan, {parameter_dtype, plan.device})
                             .gathered_elements(plan.plan)));
  if (config.parallel.encodes() && hosts.ranks() > 1) {
    std::int64_t sent = 0;
    for (const layout::Bucket& bucket : plan.plan.buckets())
      sent += reduce::compressed_bytes(config.parallel, plan.plan, bucket);
    traffic.gradient_bytes = times * most_between_hosts(hosts, sent / (hosts.ranks() - 1));
    return traffic;
  }
  const bool factors = config.parallel.gradient_rank.given();
  const std::int64_t summed = factors ? reduce::factor_elements(config.parallel, plan.plan)
                                      : plan.plan.owned_elements() * plan.plan.ranks();
  const DType wire = reduce::dtype_of(config.parallel.gradient_dtype);
  const optim::OuterConfig& outer = config.optimizer.outer;
  auto gradients = comm::reduce_traffic(transport, config.parallel.reduction, wire, hosts, replicas,
                                        summed, outer.on());
  if (!plan.sharded() || factors)  // an all-reduce
    std::ranges::transform(gradients, gathered(wire, summed), gradients.begin(), std::plus{});
  traffic.gradient_bytes = times * std::ranges::max(gradients);
  if (replicas.count() > 1 && outer.on())
    traffic.gradient_bytes += most_averaged(
        hosts, plan.plan,
        optim::averaged_bytes(outer, plan.plan) * plan.plan.ranks() / (replicas.count() - 1));
  return traffic;
}

}  // namespace

DeckPlan plan_of(const deck::Deck& deck, int ranks, int hosts) {
  const deck::JobConfig& config = deck.config;
  const auto kind = session::choose_kind(config.run.device, device::count_cuda_devices());
  const auto wire = kind == device::Kind::cuda ? reduce::Wire::gpus
                    : hosts == 1               ? reduce::Wire::inside_a_host
                                               : reduce::Wire::between_hosts;
  const bool local = config.optimizer.outer.on();
  const auto replicas = config.parallel.sharded()
                            ? reduce::replicas(config.parallel, ranks, hosts, local)
                            : layout::ReplicaRanks(ranks, 1);
  // The last replica is one of the smallest, whose ranks hold most.
  const int replica = replicas.equal() ? 0 : replicas.count() - 1;
  DeckPlan result{
      .plan = session::plan_of(config.parallel, deck.shape(), replicas, wire, replica),
      .shard = config.parallel.shard,
      .device = kind,
      .slots = optim::state_slots(config.optimizer),
      .groups = optim::resolve_groups(config.optimizer, model::parameter_table(deck.shape())),
      .hosts = hosts};
  result.schedule = schedule_table(config, result.groups, deck.shape().context);
  result.matrices = optim::matrix_work(result.plan, config.optimizer, result.sharded());
  const auto placed = comm::Hosts::in_blocks(ranks, hosts);
  if (result.matrices && result.sharded())
    result.host_matrix_bytes = config.optimizer.outer.local_steps *
                               optim::matrix_bytes_between(placed, result.plan, config.optimizer);
  comm::Transport transport = config.parallel.transport;
  if (transport == comm::Transport::automatic) {
    std::vector<int> host_of;  // each rank of the replica
    for (int rank = replicas.first(replica); rank < replicas.first(replica + 1); ++rank)
      host_of.push_back(placed.host_of(rank));
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
