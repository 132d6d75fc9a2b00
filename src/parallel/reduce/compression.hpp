// SPDX-License-Identifier: Apache-2.0
// Compression: methods that send fewer bytes than the gradients have. They replace the collective
// of a bucket (gradient_store.hpp). Bucket states, overlap and the optimizer do not change.
//
//   block_compression.hpp  gradient_dtype: int8, fp8, top4, top1
//   power_sgd.hpp          gradient_rank
//
// All of them have error feedback: what a step has not sent is added to the gradients of the next
// one.
//
//   e(0) = 0,  sent = decode(encode(g(t) + e(t))),  e(t+1) = g(t) + e(t) - sent
//
// Source: Karimireddy, Rebjock, Stich, Jaggi, "Error feedback fixes SignSGD and other gradient
// compression schemes", 2019, algorithm 2.
//
// 1. A sum has the same bits in every run on the same ranks, and depends neither on buckets nor on
//    what arrives first.
// 2. carried() is the state on which later steps depend. Checkpoints contain it. A step that the
//    optimizer skips is sent like any other step.
// 3. After construction no call allocates. A single rank compresses only with reduction: tree.
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

/// State of some elements of a bucket, in fp32, on which later steps depend.
struct Carried {
  /// owner: ranks have different elements. rank: every rank that sends has its own numbers of the
  /// same elements; leaf: every leaf. all: every rank has the same numbers, of the first elements of
  /// one parameter.
  enum class Holder : std::uint8_t { owner, rank, leaf, all };

  std::string name;  ///< in checkpoints
  BucketIndex bucket{};
  std::int64_t begin = 0;  ///< first element within the bucket
  View values;
  Holder holder = Holder::owner;
  std::int64_t index = 0;  ///< of the rank that sends, or of the leaf in the step (leaves.hpp)
  std::int64_t ranks = 1;  ///< number of ranks that send, or of leaves, with numbers of their own
};

class Compression {
 public:
  virtual ~Compression() = default;

  /// Adds the bucket's gradients over the ranks in place, in the whole of `gradients` or, with
  /// shards, in this rank's shard; the rest is undefined afterwards.
  virtual void reduce(BucketIndex bucket, View gradients, device::Stream& stream) = 0;
  [[nodiscard]] virtual std::vector<Carried> carried() const = 0;

  /// With reduction: tree. A step has this many leaves of this rank. The gradients of all but the
  /// last are given to keep_leaf(), in order; those of the last to reduce().
  virtual void begin_step(std::int64_t /*leaves*/) {}
  virtual void keep_leaf(std::int64_t leaf, View all_gradients, device::Stream& stream);
};

/// Null without compression, or on one rank without a tree. All arguments must outlive it.
/// Collective. Requires, with compression: a world and no replicas.
std::unique_ptr<Compression> make_compression(const layout::Plan& plan,
                                              const ParallelConfig& config,
                                              comm::Communicator& communicator,
                                              comm::World* world,
                                              device::Device& device);

/// What a method needs: bytes that a rank holds, the part of them that it carries, and the part
/// that it reads of each other rank in shared memory.
struct CompressionBytes {
  std::int64_t held = 0, carried = 0, read = 0;
};
/// 0 without compression.
CompressionBytes compression_bytes(const ParallelConfig& config, const layout::Plan& plan);

/// Elements of all factors and of what is sent whole, padding included. Requires:
/// config.gradient_rank.
std::int64_t factor_elements(const ParallelConfig& config, const layout::Plan& plan);

/// Bytes that a rank sends in a reduction of a bucket. Requires: config.compresses().
std::int64_t compressed_bytes(const ParallelConfig& config,
                              const layout::Plan& plan,
                              const layout::Bucket& bucket);

}  // namespace trireme::reduce
