// SPDX-License-Identifier: Apache-2.0
// gradient_dtype: int8 and fp8 send one byte per element and one byte per 64 elements for their
// scale; top4 and top1 send only the largest of each 64 elements (ops/block_codes.hpp).
//
// Each rank encodes its gradients plus its error, and sends each shard to its owner. The owner
// decodes the terms of all ranks, its own among them, and adds them in fp32 in rank order. With
// shard: none it then encodes the sum, plus the error of its earlier sums, and sends it to all
// ranks, which decode the same bytes. Source: Tang et al., "DoubleSqueeze", 2019.
//
// Local steps send the changes of weights between replicas in the same way (optim/local_steps.hpp).
// They also support bf16 and fp32, both without error feedback.
//
// 1. Blocks do not depend on buckets or shards, and each element of a sum has one error. So the
//    bits are the same, except with shard: none, because it encodes the sum as well.
// 2. Messages are a comm::Transfer, directly from rank to rank, on every transport.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "layout/plan.hpp"

#include "reduce/compression.hpp"

namespace trireme::reduce {

/// What each of `ranks` ranks encodes, in buckets: equal shares, one for every rank.
struct CodedBuckets {
  GradientDType dtype = GradientDType::int8;
  bool error_feedback = true;  ///< from int8 on
  bool sharded = false;        ///< only the owner of a share receives its sum
  int ranks = 1;
  std::vector<std::int64_t> shares;  ///< elements, by bucket

  [[nodiscard]] CompressionBytes bytes() const;
  /// Bytes that a rank sends in the reduction of a bucket with shares of this size.
  [[nodiscard]] std::int64_t sent_bytes(std::int64_t share) const;
};
CodedBuckets coded_buckets(const ParallelConfig& config, const layout::Plan& plan);

class BlockCompression final : public Compression {
 public:
  /// `parts`: by bucket, the parts of its values, each with `ranks` owners, which are ranks of the
  /// communicator. Owner k of a part adds its k-th share, which has whole blocks. Requires: this
  /// rank has the same index among the owners of all parts. `values`: by bucket, with fp32, which
  /// is sent in place.
  BlockCompression(const CodedBuckets& buckets,
                   std::vector<std::vector<layout::SharedPart>> parts,
                   const std::vector<View>& values,
                   comm::Communicator& communicator,
                   comm::World& world,
                   device::Device& device);

  void reduce(BucketIndex bucket, View values, device::Stream& stream) override;
  [[nodiscard]] std::vector<Carried> carried() const override;

 private:
  using Part = layout::SharedPart;

  [[nodiscard]] std::int64_t share(const Part& part) const { return part.elements / ranks_; }
  /// A share in memory that holds the whole bucket, or in its codes.
  [[nodiscard]] View values_of(View bucket, const Part& part, int owner) const;
  [[nodiscard]] View codes_of(const device::Buffer& codes, const Part& part, int owner) const;
  /// The errors of what this rank sends of a bucket, and of its own sum in a part.
  [[nodiscard]] View errors(BucketIndex bucket) const;
  [[nodiscard]] View sum_error(BucketIndex bucket, const Part& part) const;
  void find_messages(BucketIndex bucket,
                     View values,
                     std::vector<comm::MessageGroup>& groups) const;
  void encode(View codes, View values, View error, device::Stream& stream) const;
  /// Adds to the sum, unless it is the `first` term. `scratch`: as large as the sum.
  void decode(View sum, View codes, bool first, View scratch, device::Stream& stream) const;
  void add_terms(const Part& part, View values, device::Stream& stream) const;
  /// With fp32: the term of another owner, and the same as add_terms().
  [[nodiscard]] View received_values(const Part& part, int owner) const;
  void add_values(const Part& part, View values, device::Stream& stream) const;

  const std::vector<std::vector<Part>> parts_;
  const GradientDType dtype_;
  const bool sharded_;
  const int ranks_;
  int own_ = 0;                               // this rank's place among the owners
  std::vector<std::int64_t> begins_;          // of the bucket's shares, one after the other
  device::Buffer errors_, sum_errors_;        // empty without error feedback
  device::Buffer sent_, received_;            // codes of one bucket; fp32 is only received
  std::unique_ptr<comm::Transfer> transfer_;  // by bucket: the terms; then by bucket: the sums
};

}  // namespace trireme::reduce
