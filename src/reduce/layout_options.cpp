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
  const std::int64_t usual_elements = layout::Options{}.bucket_elements;
  const std::int64_t usual = config.shard == layout::Shard::gradients
                                 ? std::min(usual_elements, all / buckets_that_take_turns)
                                 : usual_elements;
  return std::min(std::max(usual, ranks * least_shard(config, wire)), all);
}

layout::Options layout_options(const ParallelConfig& config,
                               const std::vector<layout::Parameter>& parameters,
                               int ranks,
                               Wire wire) {
  return {ranks, bucket_elements(config, parameters, ranks, wire), config.padding,
          config.bucket_order, config.bucket_boundaries};
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
