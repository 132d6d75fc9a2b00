// SPDX-License-Identifier: Apache-2.0
// gradient_dtype: int8 and fp8: a byte per element, and one per 64 for their scale; top4 and top1:
// the largest of each 64 elements (ops/block_codes.hpp).
//
// Each rank encodes its gradients plus its error, and sends each shard to its owner. The owner
// decodes the terms of all ranks, its own among them, and adds them in fp32 in rank order. With
// shard: none it then encodes the sum, plus the error of its earlier sums, and sends it to all
// ranks, which decode the same bytes. Source: Tang et al., "DoubleSqueeze", 2019.
//
// Local steps send the changes of weights between replicas in the same way (optim/local_steps.hpp).
//
// 1. Blocks do not depend on buckets or shards, and each element of a sum has one error, so the
//    bits do not either. With shard: none they differ, because the sum is encoded as well.
// 2. Messages are a comm::Transfer, directly from rank to rank, on every transport.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ops/block_codes.hpp"

#include "reduce/compression.hpp"

namespace trireme::reduce {

/// What is added up among the ranks of a communicator, in buckets of equal shards of whole blocks.
struct CodedBuckets {
  GradientDType dtype = GradientDType::int8;  ///< from int8 on
  bool error_feedback = true;
  bool sharded = false;  ///< only the owner of a shard receives its sum
  int ranks = 1;
  std::vector<std::int64_t> shards;  ///< elements, by bucket

  [[nodiscard]] CompressionBytes bytes() const;
  /// That a rank sends in a reduction of a bucket of such shards.
  [[nodiscard]] std::int64_t sent_bytes(std::int64_t shard) const;
};
CodedBuckets coded_buckets(const ParallelConfig& config, const layout::Plan& plan);

class BlockCompression final : public Compression {
 public:
  /// `communicator` is over the ranks of the world.
  BlockCompression(CodedBuckets buckets,
                   comm::Communicator& communicator,
                   comm::World& world,
                   device::Device& device);

  void reduce(BucketIndex bucket, View gradients, device::Stream& stream) override;
  [[nodiscard]] std::vector<Carried> carried() const override;

 private:
  /// The codes of one rank's shard of a bucket.
  [[nodiscard]] View part(const device::Buffer& codes, BucketIndex bucket, int rank) const;
  [[nodiscard]] View error(BucketIndex bucket) const;
  [[nodiscard]] View sum_error(BucketIndex bucket) const;
  void find_messages(BucketIndex bucket, std::vector<comm::MessageGroup>& groups) const;

  const CodedBuckets buckets_;
  const ops::BlockCode code_;
  const int rank_;
  std::vector<std::int64_t> begins_;          // of this rank's shards, one after the other
  device::Buffer errors_, sum_errors_;        // empty without error feedback
  device::Buffer sent_, received_;            // codes of one bucket, by rank
  std::unique_ptr<comm::Transfer> transfer_;  // by bucket: the terms; then by bucket: the sums
};

}  // namespace trireme::reduce
