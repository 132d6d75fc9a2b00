// SPDX-License-Identifier: Apache-2.0
// gradient_dtype: int8 and fp8: a byte per element, and one per 64 for their scale
// (ops/block_codes.hpp). It replaces the collective of a reduction (gradient_store.hpp); the states
// of buckets, overlap and the optimizer are not concerned.
//
// Each rank encodes its gradients plus the error of its earlier steps, and sends each shard to its
// owner. The owner decodes the terms of all ranks, its own among them, and adds them in fp32 in
// rank order. With shard: none it then encodes the sum, plus the error of its earlier sums, and
// sends it to all ranks, which decode the same bytes.
//
//   e(0) = 0,  sent = decode(encode(g(t) + e(t))),  e(t+1) = g(t) + e(t) - sent
//
// So everything that is cut off is sent later. Source: Karimireddy, Rebjock, Stich, Jaggi, "Error
// feedback fixes SignSGD and other gradient compression schemes", 2019, algorithm 2; for the sum:
// Tang et al., "DoubleSqueeze", 2019.
//
// 1. The sum has the same bits in every run on the same ranks: terms are added in rank order,
//    whatever arrives first, and all ranks compute what they keep from the same bytes.
// 2. Blocks do not depend on buckets or shards, and each element of a sum has one error, so the
//    bits do not either. With shard: none they differ, because the sum is encoded as well.
// 3. Messages are a comm::Transfer, directly from rank to rank, on every transport.
// 4. The errors are carried(), and a checkpoint contains them. A step that the optimizer skips is
//    sent like any other one.
// 5. After construction no call allocates. One rank compresses nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/index.hpp"
#include "base/view.hpp"
#include "device/device.hpp"
#include "layout/plan.hpp"

#include "ops/block_codes.hpp"

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
  /// The plan must outlive it. Collective. Requires: config.compresses(), without replicas.
  Compression(const layout::Plan& plan,
              const ParallelConfig& config,
              comm::Communicator& communicator,
              comm::World& world,
              device::Device& device);

  /// Adds the bucket's gradients over the ranks in place, in the whole of `gradients` or, with
  /// shards, in this rank's shard; the rest is undefined afterwards.
  void reduce(BucketIndex bucket, View gradients, device::Stream& stream);
  [[nodiscard]] std::vector<Carried> carried() const;

 private:
  /// The codes of one rank's shard of a bucket.
  [[nodiscard]] static View part(const device::Buffer& codes,
                                 const layout::Bucket& bucket,
                                 int rank);
  [[nodiscard]] View error(BucketIndex bucket) const;
  [[nodiscard]] View sum_error(BucketIndex bucket) const;
  void find_messages(BucketIndex bucket, std::vector<comm::MessageGroup>& groups) const;

  const layout::Plan& plan_;
  const ops::BlockCode code_;
  const bool sharded_;
  const int rank_;
  device::Buffer errors_, sum_errors_;        // empty without error feedback
  device::Buffer sent_, received_;            // codes of one bucket, by rank
  std::unique_ptr<comm::Transfer> transfer_;  // by bucket: the terms; then by bucket: the sums
};

/// Bytes that a rank needs for compression, and the part of them that it carries.
struct CompressionBytes {
  std::int64_t held = 0, carried = 0;
};
/// 0 without compression, or on one rank.
CompressionBytes compression_bytes(const ParallelConfig& config, const layout::Plan& plan);

/// Bytes that a rank sends in a reduction of a bucket. Requires: config.compresses().
std::int64_t compressed_bytes(const ParallelConfig& config,
                              const layout::Plan& plan,
                              const layout::Bucket& bucket);

}  // namespace trireme::reduce
