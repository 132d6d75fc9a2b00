// SPDX-License-Identifier: Apache-2.0
// gradient_dtype: int8 and fp8: a byte per element, and one per 64 for their scale; top4 and top1:
// the largest of each 64 elements (ops/block_codes.hpp).
//
// Each rank encodes its gradients plus its error, and sends each shard to its owner. The owner
// decodes the terms of all ranks, its own among them, and adds them in fp32 in rank order. With
// shard: none it then encodes the sum, plus the error of its earlier sums, and sends it to all
// ranks, which decode the same bytes. Source: Tang et al., "DoubleSqueeze", 2019.
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

class BlockCompression final : public Compression {
 public:
  BlockCompression(const layout::Plan& plan,
                   const ParallelConfig& config,
                   comm::Communicator& communicator,
                   comm::World& world,
                   device::Device& device);

  void reduce(BucketIndex bucket, View gradients, device::Stream& stream) override;
  [[nodiscard]] std::vector<Carried> carried() const override;

  static CompressionBytes bytes(const ParallelConfig& config, const layout::Plan& plan);
  static std::int64_t sent_bytes(const ParallelConfig& config,
                                 const layout::Plan& plan,
                                 const layout::Bucket& bucket);

 private:
  /// The codes of one rank's shard of a bucket.
  [[nodiscard]] View part(const device::Buffer& codes,
                          const layout::Bucket& bucket,
                          int rank) const;
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

}  // namespace trireme::reduce
