// SPDX-License-Identifier: Apache-2.0
#include "reduce/compression.hpp"

#include <numeric>
#include <utility>

#include "base/error.hpp"

#include "reduce/block_compression.hpp"
#include "reduce/power_sgd.hpp"

namespace trireme::reduce {

void Compression::keep_leaf(std::int64_t leaf, View /*all_gradients*/, device::Stream& /*stream*/) {
  TRIREME_EXPECT(false, "leaf {} of a method without leaves", leaf);
}

std::unique_ptr<Compression> make_compression(const layout::Plan& plan,
                                              const ParallelConfig& config,
                                              comm::Communicator& communicator,
                                              comm::World* world,
                                              device::Device& device) {
  if (!config.compresses_on(plan.all_ranks()))
    return nullptr;
  TRIREME_EXPECT(plan.replicas() == 1 && !layout::shards_gradients(config.shard),
                 "compression in {} replicas, or with shard: {}", plan.replicas(),
                 word(config.shard));
  if (config.gradient_rank.given())
    return std::make_unique<PowerSgd>(plan, config, communicator, device);
  TRIREME_EXPECT(world != nullptr, "{} without a world", word(config.gradient_dtype));
  std::vector<int> ranks(static_cast<std::size_t>(plan.ranks()));
  std::iota(ranks.begin(), ranks.end(), 0);
  std::vector<std::vector<layout::SharedPart>> parts;
  for (const layout::Bucket& bucket : plan.buckets())
    parts.push_back({{.begin = 0, .elements = bucket.elements, .owners = ranks}});
  return std::make_unique<BlockCompression>(coded_buckets(config, plan), std::move(parts),
                                            std::vector<View>{}, communicator, *world, device);
}

CompressionBytes compression_bytes(const ParallelConfig& config, const layout::Plan& plan) {
  if (!config.compresses_on(plan.all_ranks()))
    return {};
  return config.gradient_rank.given() ? PowerSgd::bytes(config, plan)
                                      : coded_buckets(config, plan).bytes();
}

std::int64_t compressed_bytes(const ParallelConfig& config,
                              const layout::Plan& plan,
                              const layout::Bucket& bucket) {
  return config.gradient_rank.given()
             ? PowerSgd::sent_bytes(config, plan, bucket)
             : coded_buckets(config, plan).sent_bytes(bucket.shard_elements);
}

}  // namespace trireme::reduce
