// SPDX-License-Identifier: Apache-2.0
#include "layout/budget.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"

namespace trireme::layout {
namespace {

constexpr std::int64_t fp32_bytes = size_bytes(DType::f32);

std::int64_t largest_power_of_two_in(std::int64_t value) {
  return value & -value;
}

/// The start of each bucket in a rank's memory: separate for each, or in shared slots.
struct Places {
  Places(const Plan& all, const BudgetOptions& options) : plan(all) {
    if (shards_gradients(options.shard))
      ring.emplace(plan);
    if (options.shard == Shard::parameters)
      residency.emplace(plan, options.gathers);
  }
  [[nodiscard]] std::int64_t gradient_begin(BucketIndex bucket) const {
    return ring ? ring->begin(bucket) : plan.bucket(bucket).begin;
  }
  [[nodiscard]] std::int64_t parameter_begin(BucketIndex bucket) const {
    return residency ? residency->ring().begin(bucket) : plan.bucket(bucket).begin;
  }

  const Plan& plan;
  std::optional<Ring> ring;
  std::optional<Residency> residency;
};

BucketRow row_of(const Places& places, BucketIndex index, std::int64_t parameter_element_bytes) {
  const Plan& plan = places.plan;
  const Bucket& bucket = plan.bucket(index);
  BucketRow row;
  row.bucket = index;
  row.first = bucket.parameters.front();
  row.last = bucket.parameters.back();
  row.num_parameters = static_cast<std::int64_t>(bucket.parameters.size());
  row.begin = bucket.begin;
  row.elements = bucket.elements;
  row.padding = plan.padding(index);
  row.shard_elements = bucket.shard_elements;
  // Shard starts are begin + r·shard; with one rank there is only `begin`.
  const auto alignment = [&](std::int64_t begin, std::int64_t element_bytes) {
    const std::int64_t stride = plan.ranks() == 1 ? begin : std::gcd(begin, bucket.shard_elements);
    return largest_power_of_two_in((stride == 0 ? plan.granule() : stride) * element_bytes);
  };
  row.gradient_alignment_bytes = alignment(places.gradient_begin(index), fp32_bytes);
  row.parameter_alignment_bytes = alignment(places.parameter_begin(index), parameter_element_bytes);
  // Between parameters are gaps of fewer than 64 elements, and a shard can be inside one.
  for (int rank = 0; rank < plan.ranks(); ++rank)
    if (plan.find_pieces(index, rank).empty())
      ++row.num_padding_only_ranks;
  return row;
}

using Range = std::pair<std::int64_t, std::int64_t>;  // begin, end

std::int64_t covered(std::vector<Range> ranges) {
  std::ranges::sort(ranges);
  std::int64_t sum = 0, end = 0;
  for (const Range& range : ranges) {
    sum += std::max<std::int64_t>(0, range.second - std::max(range.first, end));
    end = std::max(end, range.second);
  }
  return sum;
}

/// By local rank, the elements of one rank's memory that are covered by the shards that this local
/// rank has for its host. Shards of buckets that share a slot overlap in part.
template <class BeginOf>
std::vector<std::int64_t> shards_on_a_host(const Plan& plan, int host_ranks, BeginOf&& begin_of) {
  std::vector<std::int64_t> elements;
  for (int local = 0; local < host_ranks; ++local) {
    std::vector<Range> shards;
    for (std::size_t b = 0; b < plan.buckets().size(); ++b)
      for (int owner = local; owner < plan.ranks(); owner += host_ranks) {
        const std::int64_t shard = plan.buckets()[b].shard_elements;
        const std::int64_t begin = begin_of(static_cast<BucketIndex>(b)) + owner * shard;
        shards.emplace_back(begin, begin + shard);
      }
    elements.push_back(covered(std::move(shards)));
  }
  return elements;
}

/// Elements that a rank sends in both phases of an all-reduce among `ranks`.
std::int64_t all_reduced(std::int64_t elements, int ranks) {
  return 2 * (elements - elements / ranks);
}

/// Elements of a state slot in the buckets with the same primary replica; maximum over replicas.
std::int64_t most_of_a_replica(const Plan& plan, const std::vector<std::int64_t>& begins) {
  std::vector<std::int64_t> kept(static_cast<std::size_t>(plan.replicas()));
  for (std::size_t b = 0; b + 1 < begins.size(); ++b)
    kept[static_cast<std::size_t>(plan.primary_replica(static_cast<BucketIndex>(b)))] +=
        begins[b + 1] - begins[b];
  return std::ranges::max(kept);
}

}  // namespace

std::int64_t BudgetOptions::gathered_elements(const Plan& plan) const {
  if (shard == Shard::parameters)
    return local_steps * layout::gathered_elements(plan, gathers,
                                                   micro_step_reductions.value_or(1) / local_steps);
  // After the local steps the parameters are gathered once more.
  const std::int64_t times = local_steps > 1 ? local_steps + 1 : 1;
  return sharded() ? times * plan.owned_elements() * plan.ranks() : 0;
}

std::int64_t reduced_elements(const Plan& plan,
                              const BudgetOptions& options,
                              std::int64_t shard_elements) {
  if (plan.replicas() == 1)
    return shard_elements * (plan.ranks() - 1) * (options.sharded() ? 1 : 2);
  const std::int64_t inside = shard_elements * (plan.ranks() - 1);
  if (options.local_steps > 1)
    return inside;
  return options.ordered ? all_reduced(shard_elements * plan.ranks(), plan.all_ranks())
                         : inside + all_reduced(shard_elements, plan.replicas());
}

std::int64_t snapshot_bytes(const Plan& plan, const StateSlots& slots) {
  std::int64_t bytes = 0;
  for (const StateSlot& slot : slots) {
    // A slot of all parameters has the same size on every rank of a replica.
    const int different = slot.of_matrices ? 1 : plan.ranks();
    std::int64_t most = 0;
    for (int rank = 0; rank < different; ++rank)
      most =
          std::max(most, slot.of_replica ? slot_begins(plan, slot, rank).back()
                                         : most_of_a_replica(plan, slot_begins(plan, slot, rank)));
    bytes += most * static_cast<std::int64_t>(size_bytes(slot.dtype));
  }
  return bytes;
}

std::int64_t peer_bytes(const Plan& plan, const BudgetOptions& options, int host_ranks) {
  const Places places(plan, options);
  // Rounded gradients are all sent from the memory of one bucket.
  const auto summed = shards_on_a_host(plan, host_ranks, [&](BucketIndex bucket) {
    return options.wire_dtype == DType::f32 ? places.gradient_begin(bucket) : 0;
  });
  const auto gathered =
      options.sharded()
          ? shards_on_a_host(plan, host_ranks,
                             [&](BucketIndex bucket) { return places.parameter_begin(bucket); })
          : summed;
  const auto wire = static_cast<std::int64_t>(size_bytes(options.wire_dtype));
  const auto of_gathered = static_cast<std::int64_t>(
      size_bytes(options.sharded() ? options.parameter_dtype : options.wire_dtype));
  const bool by_messages = options.ordered && plan.replicas() > 1;
  const bool compressed = !options.compressed_bytes.empty();  // these are sent as messages
  const std::int64_t all = std::accumulate(gathered.begin(), gathered.end(), std::int64_t{0});
  std::int64_t most = 0;
  for (std::size_t local = 0; local < summed.size(); ++local)
    most = std::max(
        most, (by_messages || compressed ? 0 : (host_ranks - 1) * summed[local] * wire) +
                  (compressed && !options.sharded() ? 0 : (all - gathered[local]) * of_gathered));
  const int adders = options.local_steps > 1 ? plan.ranks() : plan.all_ranks();
  const std::int64_t step_sums = std::int64_t{2} * (host_ranks - 1) *
                                 (step_sum_elements(adders) / host_ranks) *
                                 static_cast<std::int64_t>(size_bytes(DType::i64));
  return most + (by_messages ? 0 : step_sums);
}

Budget budget_of(const Plan& plan, const StateSlots& slots, const BudgetOptions& options) {
  TRIREME_EXPECT(!shards_gradients(options.shard) || options.micro_step_reductions,
                 "shards of {} without sums of micro-steps", word(options.shard));
  const auto parameter_element_bytes =
      static_cast<std::int64_t>(size_bytes(options.parameter_dtype));
  const Places places(plan, options);
  const std::optional<Residency>& residency = places.residency;
  Budget budget;
  for (std::size_t b = 0; b < plan.buckets().size(); ++b)
    budget.buckets.push_back(row_of(places, static_cast<BucketIndex>(b), parameter_element_bytes));

  const auto wire_element_bytes = static_cast<std::int64_t>(size_bytes(options.wire_dtype));
  const bool copies = options.wire_dtype != DType::f32 && plan.all_ranks() > 1;
  const std::int64_t updated = plan.owned_elements() * (options.sharded() ? 1 : plan.ranks());
  budget.gradient_bytes = (places.ring ? places.ring->elements() : plan.flat_elements()) *
                              fp32_bytes * (1 + options.partial_sums) +
                          (copies ? plan.largest_bucket() * wire_element_bytes : 0) +
                          (options.micro_step_reductions ? updated * fp32_bytes : 0);
  budget.parameter_bytes = ((residency ? residency->ring().elements() : plan.flat_elements()) +
                            (residency && residency->shares_slots() ? plan.owned_elements() : 0)) *
                           parameter_element_bytes;
  for (const StateSlot& slot : slots)
    budget.state_bytes.push_back(most_slot_bytes(plan, slot, options.sharded()));
  if (options.parameter_dtype == DType::f32 && !slots.empty())
    budget.state_bytes.front() = 0;
  budget.snapshot_bytes = options.snapshot ? snapshot_bytes(plan, slots) : 0;
  budget.copies_bytes = options.copies > 0 ? options.copies * snapshot_bytes(plan, slots) : 0;

  const auto& compressed = options.compressed_bytes;
  budget.gradient_wire_bytes =
      (compressed.empty()
           ? reduced_elements(plan, options, plan.owned_elements()) * wire_element_bytes
           : std::accumulate(compressed.begin(), compressed.end(), std::int64_t{0})) *
      options.micro_step_reductions.value_or(options.local_steps);
  budget.gradient_wire_bytes += options.averaged_bytes;
  const std::int64_t gathered = options.gathered_elements(plan);
  budget.parameter_wire_bytes = (gathered - gathered / plan.ranks()) * parameter_element_bytes;
  return budget;
}

}  // namespace trireme::layout
