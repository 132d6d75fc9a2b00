// SPDX-License-Identifier: Apache-2.0
#include "reduce/layout_options.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "base/text.hpp"

#include "comm/transport/transports.hpp"

namespace trireme::reduce {
namespace {

constexpr std::int64_t least_shard_on_gpus = 1'000'000;
/// Of the model, where buckets take turns: three of them are memory that gradients need anyway.
constexpr std::int64_t buckets_that_take_turns = 16;

std::int64_t least_shard(const ParallelConfig& config, Wire wire) {
  if (wire == Wire::gpus)
    return least_shard_on_gpus;
  return static_cast<std::int64_t>(comm::message_bytes({}, wire == Wire::inside_a_host) /
                                   size_bytes(dtype_of(config.gradient_dtype)));
}

/// Elements of the largest layer but the first and the last, which have the embeddings.
std::int64_t largest_inner_layer(const std::vector<layout::Parameter>& parameters) {
  std::int64_t largest = 0, sum = 0;
  const int first = parameters.front().group, last = parameters.back().group;
  int group = first;
  for (const layout::Parameter& parameter : parameters) {
    sum = parameter.group == group ? sum : 0;
    group = parameter.group;
    if (group == first || group == last)
      continue;
    sum += parameter.elements();
    largest = std::max(largest, sum);
  }
  return largest;
}

}  // namespace

Wire wire_of(const comm::World& world, const device::Device& device) {
  if (device.kind() == device::Kind::cuda)
    return Wire::gpus;
  return world.local_size() == world.size() ? Wire::inside_a_host : Wire::between_hosts;
}

std::int64_t bucket_elements(const ParallelConfig& config,
                             const std::vector<layout::Parameter>& parameters,
                             int ranks,
                             Wire wire) {
  if (config.bucket_elements.given())
    return *config.bucket_elements.value;
  const std::int64_t all = layout::total_elements(parameters);
  std::int64_t usual = layout::Options{}.bucket_elements;
  if (layout::shards_gradients(config.shard))
    usual = std::min(usual, all / buckets_that_take_turns);
  if (config.shard == layout::Shard::parameters)
    usual = std::max(usual, largest_inner_layer(parameters));
  return std::min(std::max(usual, ranks * least_shard(config, wire)), all);
}

layout::Options layout_options(const ParallelConfig& config,
                               const std::vector<layout::Parameter>& parameters,
                               int ranks,
                               Wire wire) {
  return {ranks,
          bucket_elements(config, parameters, ranks, wire),
          config.padding,
          config.bucket_order,
          config.bucket_boundaries,
          config.shard == layout::Shard::parameters};
}

std::string bucket_text(const ParallelConfig& config, const layout::Plan& plan) {
  std::string text =
      config.bucket_boundaries.empty()
          ? fmt::format("{} elements{}",
                        count_text(static_cast<double>(plan.options().bucket_elements)),
                        config.bucket_elements.given() ? "" : ": auto")
          : "chosen by hand";
  if (config.bucket_order == layout::BucketOrder::registration)
    text += ", in registration order";
  return text;
}

}  // namespace trireme::reduce
