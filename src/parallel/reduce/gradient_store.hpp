// SPDX-License-Identifier: Apache-2.0
// The memory of gradients: those that backward writes, those that are sent, and those that the
// optimizer reads. It enqueues reductions on the communication stream.
//
// Gradients are fp32 views of the buckets, which may share a few slots (docs/design/parallel.md,
// "Sharded gradients"). A reduction rounds the bucket into a separate buffer if gradient_dtype is
// bf16, reduces it, converts the result back, or leaves all of this to compression.hpp, and, if
// every micro-step is reduced, adds it to the sums of earlier micro-steps.
//
// 1. Views are valid for the lifetime of the store; views of buckets of one slot overlap.
// 2. The rounded copy has the memory of one bucket: reductions use it one after another.
// 3. If every micro-step is reduced, a bucket's memory is free after its reduction, and own() is
//    separate memory. The sums are added up in the order of micro-steps.
// 4. After construction no call allocates and, with cached shards, none computes an address.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "base/view.hpp"
#include "device/device.hpp"
#include "layout/plan.hpp"
#include "layout/residency.hpp"

#include "comm/communicator.hpp"
#include "reduce/compression.hpp"
#include "reduce/config.hpp"

namespace trireme::reduce {

class GradientStore {
 public:
  /// All of these must outlive the store. Collective, because it allocates from the communicator.
  /// `world`: of the communicator; required if `config` compresses and there are several ranks.
  GradientStore(const layout::Plan& plan,
                const ParallelConfig& config,
                comm::Communicator& communicator,
                device::Device& device,
                comm::World* world = nullptr);

  [[nodiscard]] View gradient(ParameterIndex parameter) const { return views_[at(parameter)]; }
  /// The whole bucket with padding.
  [[nodiscard]] View bucket(BucketIndex bucket) const { return buckets_[at(bucket)].whole; }
  /// The gradients that the optimizer reads after the last reduction: this rank's shard, or the
  /// whole bucket if nothing is sharded.
  [[nodiscard]] View own(BucketIndex bucket) const;
  /// How buckets share memory; none if each has its own.
  [[nodiscard]] const std::optional<layout::Ring>& ring() const { return ring_; }
  /// The memory of all buckets with padding.
  [[nodiscard]] View all() const { return arena_.view(DType::f32); }
  /// Bytes of fp32 gradients, of the rounded copy, of compression, and of the sums of micro-steps.
  [[nodiscard]] std::size_t bytes() const {
    return arena_.bytes() + wire_.bytes() + compression_bytes_ + sums_.bytes();
  }
  [[nodiscard]] std::vector<Carried> carried() const {
    return compression_ ? compression_->carried() : std::vector<Carried>();
  }
  [[nodiscard]] Compression* compression() const { return compression_.get(); }

  /// Computes the shards of the bucket again, as in every step without cached shards.
  void find_shards(BucketIndex bucket);
  /// Requires: the bucket's gradients are complete when `stream` reaches this point. `first`:
  /// whether this is the first micro-step of the step.
  void reduce(BucketIndex bucket, bool first, device::Stream& stream);

 private:
  struct Bucket {
    View whole;
    View wire;  // operand of the reduction: the gradients themselves, or their rounded copy
    View sums;  // like reduced(), if every micro-step is reduced
    std::unique_ptr<comm::Shards> shards;
  };

  void allocate(const ParallelConfig& config);
  [[nodiscard]] View find(BucketIndex bucket) const;
  /// The part of `whole` that has the result of a reduction on this rank.
  [[nodiscard]] View reduced(BucketIndex bucket) const;

  const layout::Plan& plan_;
  const bool sharded_, rounds_;
  const std::optional<layout::Ring> ring_;
  comm::Communicator& communicator_;
  device::Device& device_;
  const std::size_t compression_bytes_;
  const std::unique_ptr<Compression> compression_;
  device::Buffer arena_, wire_, sums_;
  std::vector<View> views_;  // by parameter
  std::vector<Bucket> buckets_;
};

}  // namespace trireme::reduce
