// SPDX-License-Identifier: Apache-2.0
// Methods that send less than the gradients of a bucket. A method replaces the collective of a
// reduction (gradient_store.hpp); the states of buckets, overlap and the optimizer are not
// concerned.
//
// A new method is a class with a reduce(), a function with the bytes that it sends and holds, a
// line in each function of compression.cpp, and its keys in config.hpp.
//
// 1. The sum has the same bits in every run on the same ranks: terms are added in rank order,
//    whatever arrives first, and all ranks compute what they keep from the same bytes.
// 2. What a method keeps between steps (the error of earlier steps, which it adds to the next
//    gradients) is carried(), and a checkpoint contains it. A step that the optimizer skips is sent
//    like any other one.
// 3. After construction no call allocates.
// 4. One rank compresses nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/index.hpp"
#include "base/view.hpp"
#include "device/device.hpp"
#include "layout/plan.hpp"

#include "comm/communicator.hpp"
#include "reduce/config.hpp"

namespace trireme::reduce {

/// Numbers of some elements of a bucket, fp32, that later steps depend on.
struct Carried {
  std::string name;  ///< in checkpoints
  BucketIndex bucket{};
  std::int64_t begin = 0;  ///< first element within the bucket
  View values;
  bool of_rank = false;  ///< every rank has its own; else ranks have different elements
};

class Compression {
 public:
  virtual ~Compression() = default;
  /// Adds the bucket's gradients over the ranks in place, in the whole of `gradients` or, with
  /// shards, in this rank's shard; the rest is undefined afterwards.
  virtual void reduce(BucketIndex bucket, View gradients, device::Stream& stream) = 0;
  [[nodiscard]] virtual std::vector<Carried> carried() const = 0;
};

/// Where a method runs. All of these outlive it.
struct CompressionSetup {
  const layout::Plan& plan;
  const ParallelConfig& config;
  comm::Communicator& communicator;
  comm::World& world;
  device::Device& device;
};

/// Collective. Requires: config.compresses(), without replicas.
std::unique_ptr<Compression> make_compression(const CompressionSetup& setup);

/// Bytes that a rank needs for a method, and the part of them that it carries.
struct CompressionBytes {
  std::int64_t held = 0, carried = 0;
};
/// 0 if `config` has no method, or on one rank.
CompressionBytes compression_bytes(const ParallelConfig& config, const layout::Plan& plan);

/// Bytes that a rank sends in a reduction of a bucket. Requires: config.compresses().
std::int64_t compressed_bytes(const ParallelConfig& config,
                              const layout::Plan& plan,
                              const layout::Bucket& bucket);

}  // namespace trireme::reduce
