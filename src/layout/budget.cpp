// SPDX-License-Identifier: Apache-2.0
#include "layout/budget.hpp"

#include <algorithm>
#include <numeric>

namespace trireme::layout {
namespace {

constexpr std::int64_t fp32_bytes = size_bytes(DType::f32);

std::int64_t largest_power_of_two_in(std::int64_t value) {
  return value & -value;
}

BucketRow row_of(const Plan& plan, BucketIndex index, std::int64_t parameter_element_bytes) {
  const Bucket& bucket = plan.bucket(index);
  BucketRow row;
  row.bucket = index;
  row.first = bucket.parameters.front();
  row.last = bucket.parameters.back();
  row.num_parameters = static_cast<std::int64_t>(bucket.parameters.size());
  row.begin = bucket.begin;
  row.elements = bucket.elements;
  row.padding = bucket.elements;
  for (const ParameterIndex parameter : bucket.parameters)
    row.padding -= plan.placement(parameter).elements;
  row.shard_elements = bucket.shard_elements;
  // Shard starts are begin + r·shard; with one rank there is only `begin`.
  const std::int64_t stride =
      plan.ranks() == 1 ? bucket.begin : std::gcd(bucket.begin, bucket.shard_elements);
  const std::int64_t shared = stride == 0 ? plan.granule() : stride;
  row.gradient_alignment_bytes = largest_power_of_two_in(shared * fp32_bytes);
  row.parameter_alignment_bytes = largest_power_of_two_in(shared * parameter_element_bytes);
  // Parameters follow one another with fewer than 64 elements between them, so a shard can lie in
  // such a gap; only looking shows it.
  for (int rank = 0; rank < plan.ranks(); ++rank)
    if (plan.find_pieces(index, rank).empty())
      ++row.num_padding_only_ranks;
  return row;
}

}  // namespace

std::int64_t snapshot_bytes(const Plan& plan, const StateSlots& slots) {
  // Slots of all parameters are as large on every rank, so the most of all is that of each.
  std::int64_t elements = 0;
  for (const StateSlot& slot : slots) elements += most_slot_elements(plan, slot, true);
  return fp32_bytes * elements;
}

std::int64_t peer_bytes(
    const Plan& plan, DType parameter_dtype, bool sharded, DType wire_dtype, int host_ranks) {
  const auto bytes = [](DType dtype) { return static_cast<std::int64_t>(size_bytes(dtype)); };
  // Of one other rank: the part of the shards that falls to one rank of the host.
  const auto part = [&](std::int64_t elements) { return elements / host_ranks; };
  const std::int64_t sums = 2 * part(step_sum_elements(plan.ranks())) * bytes(DType::i64);
  // What is rounded travels from the memory of one bucket, again and again.
  const std::int64_t gradients =
      part(wire_dtype == DType::f32 ? plan.flat_elements() : plan.largest_bucket()) *
      bytes(wire_dtype);
  const std::int64_t gathered =
      sharded ? part(plan.flat_elements()) * bytes(parameter_dtype) : gradients;
  return (host_ranks - 1) * (gradients + gathered + sums);
}

Budget budget_of(const Plan& plan,
                 const StateSlots& slots,
                 DType parameter_dtype,
                 bool sharded,
                 DType wire_dtype,
                 int partial_sums,
                 bool snapshot) {
  const auto parameter_element_bytes = static_cast<std::int64_t>(size_bytes(parameter_dtype));
  Budget budget;
  for (std::size_t b = 0; b < plan.buckets().size(); ++b)
    budget.buckets.push_back(row_of(plan, static_cast<BucketIndex>(b), parameter_element_bytes));

  const auto wire_element_bytes = static_cast<std::int64_t>(size_bytes(wire_dtype));
  const bool copies = wire_dtype != DType::f32 && plan.ranks() > 1;
  budget.gradient_bytes = plan.flat_elements() * fp32_bytes * (1 + partial_sums) +
                          (copies ? plan.largest_bucket() * wire_element_bytes : 0);
  budget.parameter_bytes = plan.flat_elements() * parameter_element_bytes;
  for (const StateSlot& slot : slots)
    budget.state_bytes.push_back(most_slot_elements(plan, slot, sharded) * fp32_bytes);
  if (parameter_dtype == DType::f32 && !slots.empty())
    budget.state_bytes.front() = 0;
  budget.snapshot_bytes = snapshot ? snapshot_bytes(plan, slots) : 0;

  const std::int64_t foreign = plan.owned_elements() * (plan.ranks() - 1);
  budget.gradient_wire_bytes = foreign * wire_element_bytes * (sharded ? 1 : 2);
  budget.parameter_wire_bytes = sharded ? foreign * parameter_element_bytes : 0;
  return budget;
}

}  // namespace trireme::layout
