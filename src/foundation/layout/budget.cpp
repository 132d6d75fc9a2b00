// SPDX-License-Identifier: Apache-2.0
#include "layout/budget.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "layout/residency.hpp"

namespace trireme::layout {
namespace {

constexpr std::int64_t fp32_bytes = size_bytes(DType::f32);

std::int64_t largest_power_of_two_in(std::int64_t value) {
  return value & -value;
}

std::optional<Ring> ring_of(const Plan& plan, const BudgetOptions& options) {
  return shards_gradients(options.shard) ? std::optional<Ring>(plan) : std::nullopt;
}

/// Elements of the memory of whole parameters, of all buckets or of a few.
std::int64_t parameter_elements(const Plan& plan, const BudgetOptions& options) {
  return options.shard == Shard::parameters ? Residency(plan, options.gathers).ring().elements()
                                            : plan.flat_elements();
}

/// Elements of the memory that backward writes to.
std::int64_t gradient_elements(const Plan& plan, const BudgetOptions& options) {
  const std::optional<Ring> ring = ring_of(plan, options);
  return ring ? ring->elements() : plan.flat_elements();
}

BucketRow row_of(const Plan& plan,
                 BucketIndex index,
                 std::int64_t gradient_begin,
                 std::int64_t parameter_begin,
                 std::int64_t parameter_element_bytes) {
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
  row.gradient_alignment_bytes = alignment(gradient_begin, fp32_bytes);
  row.parameter_alignment_bytes = alignment(parameter_begin, parameter_element_bytes);
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

/// Start of each bucket in the memory from which gradients are sent. Rounded gradients are all sent
/// from the memory of one bucket.
std::vector<std::int64_t> begins_of_gradients(const Plan& plan, const BudgetOptions& options) {
  const std::optional<Ring> ring = ring_of(plan, options);
  std::vector<std::int64_t> begins(plan.buckets().size());
  for (std::size_t b = 0; b < begins.size() && options.wire_dtype == DType::f32; ++b)
    begins[b] = ring ? ring->begin(static_cast<BucketIndex>(b)) : plan.buckets()[b].begin;
  return begins;
}

std::vector<std::int64_t> begins_of_parameters(const Plan& plan, const BudgetOptions& options) {
  std::vector<std::int64_t> begins;
  for (const Bucket& bucket : plan.buckets()) begins.push_back(bucket.begin);
  if (options.shard != Shard::parameters)
    return begins;
  const Residency residency(plan, options.gathers);
  for (std::size_t b = 0; b < begins.size(); ++b)
    begins[b] = residency.ring().begin(static_cast<BucketIndex>(b));
  return begins;
}

/// By local rank, the elements of one rank's memory that are covered by the shards that this local
/// rank has for its host. Shards of buckets that share a slot overlap in part.
std::vector<std::int64_t> shards_on_a_host(const Plan& plan,
                                           const std::vector<std::int64_t>& begins,
                                           int host_ranks) {
  std::vector<std::int64_t> elements;
  for (int local = 0; local < host_ranks; ++local) {
    std::vector<Range> shards;
    for (std::size_t b = 0; b < begins.size(); ++b)
      for (int owner = local; owner < plan.ranks(); owner += host_ranks) {
        const std::int64_t shard = plan.buckets()[b].shard_elements;
        const std::int64_t begin = begins[b] + owner * shard;
        shards.emplace_back(begin, begin + shard);
      }
    elements.push_back(covered(std::move(shards)));
  }
  return elements;
}

/// Elements that a rank sends in both directions of an all-reduce among `ranks`.
std::int64_t all_reduced(std::int64_t elements, int ranks) {
  return 2 * (elements - elements / ranks);
}

/// Elements of a state slot in the buckets of one primary replica, maximum over the replicas.
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

std::int64_t averaged_bytes(const Plan& plan, const BudgetOptions& options) {
  return options.averaged_states * fp32_bytes * all_reduced(plan.owned_elements(), plan.replicas());
}

std::int64_t snapshot_bytes(const Plan& plan, const StateSlots& slots) {
  std::int64_t bytes = 0;
  for (const StateSlot& slot : slots) {
    // A slot of all parameters has the same size on every rank of a replica.
    const int different = slot.of_matrices ? 1 : plan.ranks();
    std::int64_t most = 0;
    for (int rank = 0; rank < different; ++rank)
      most = std::max(most, most_of_a_replica(plan, slot_begins(plan, slot, rank)));
    bytes += most * static_cast<std::int64_t>(size_bytes(slot.dtype));
  }
  return bytes;
}

std::int64_t peer_bytes(const Plan& plan, const BudgetOptions& options, int host_ranks) {
  const std::vector<std::int64_t> summed =
      shards_on_a_host(plan, begins_of_gradients(plan, options), host_ranks);
  const std::vector<std::int64_t> gathered =
      options.sharded() ? shards_on_a_host(plan, begins_of_parameters(plan, options), host_ranks)
                        : summed;
  const auto wire = static_cast<std::int64_t>(size_bytes(options.wire_dtype));
  const auto of_gathered = static_cast<std::int64_t>(
      size_bytes(options.sharded() ? options.parameter_dtype : options.wire_dtype));
  const bool by_messages = options.ordered && plan.replicas() > 1;
  const bool compressed = !options.compressed_bytes.empty();  // by messages as well
  const std::int64_t all = std::accumulate(gathered.begin(), gathered.end(), std::int64_t{0});
  std::int64_t most = 0;
  for (std::size_t local = 0; local < summed.size(); ++local)
    most = std::max(
        most, (by_messages || compressed ? 0 : (host_ranks - 1) * summed[local] * wire) +
                  (compressed && !options.sharded() ? 0 : (all - gathered[local]) * of_gathered));
  const std::int64_t step_sums = std::int64_t{2} * (host_ranks - 1) *
                                 (step_sum_elements(plan.all_ranks()) / host_ranks) *
                                 static_cast<std::int64_t>(size_bytes(DType::i64));
  return most + (by_messages ? 0 : step_sums);
}

Budget budget_of(const Plan& plan, const StateSlots& slots, const BudgetOptions& options) {
  TRIREME_EXPECT(!shards_gradients(options.shard) || options.micro_step_reductions,
                 "shards of {} without sums of micro-steps", word(options.shard));
  const auto parameter_element_bytes =
      static_cast<std::int64_t>(size_bytes(options.parameter_dtype));
  const std::optional<Ring> ring = ring_of(plan, options);
  const bool in_shards = options.shard == Shard::parameters;
  const std::optional<Residency> residency =
      in_shards ? std::optional<Residency>(std::in_place, plan, options.gathers) : std::nullopt;
  Budget budget;
  for (std::size_t b = 0; b < plan.buckets().size(); ++b) {
    const auto index = static_cast<BucketIndex>(b);
    const std::int64_t begin = plan.bucket(index).begin;
    budget.buckets.push_back(row_of(plan, index, ring ? ring->begin(index) : begin,
                                    residency ? residency->ring().begin(index) : begin,
                                    parameter_element_bytes));
  }

  const auto wire_element_bytes = static_cast<std::int64_t>(size_bytes(options.wire_dtype));
  const bool copies = options.wire_dtype != DType::f32 && plan.all_ranks() > 1;
  const std::int64_t updated = plan.owned_elements() * (options.sharded() ? 1 : plan.ranks());
  budget.gradient_bytes =
      gradient_elements(plan, options) * fp32_bytes * (1 + options.partial_sums) +
      (copies ? plan.largest_bucket() * wire_element_bytes : 0) +
      (options.micro_step_reductions ? updated * fp32_bytes : 0);
  budget.parameter_bytes = (parameter_elements(plan, options) +
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
  budget.gradient_wire_bytes += averaged_bytes(plan, options);
  const std::int64_t gathered = options.gathered_elements(plan);
  budget.parameter_wire_bytes = (gathered - gathered / plan.ranks()) * parameter_element_bytes;
  return budget;
}

}  // namespace trireme::layout
