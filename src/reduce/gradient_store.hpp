// SPDX-License-Identifier: Apache-2.0
// The memory of gradients: where backward writes them, what travels, and what the optimizer reads.
//
// Backward writes fp32 gradients in place (they are views of a bucket, nothing is copied in). The
// reduction of a bucket is enqueued here, on the communication stream: rounded into a buffer of its
// own where gradient_dtype is not fp32, reduced, widened back, and, where every micro-step is
// reduced by itself, added to the sums of the micro-steps before.
//
// With shard: gradients or parameters the buckets take turns in a few slots (layout/ring.hpp), and each
// micro-step is reduced by itself: whole gradients exist while a bucket is written and reduced, and
// what is kept is the sum that this rank owns.
//
// 1. Views are valid for the store's life; those of buckets of one slot overlap.
// 2. The copy that travels has the memory of one bucket: reductions use it one after another.
// 3. Where micro-steps are reduced by themselves a bucket's memory is free again when its reduction
// is over, and own() lies apart from it. The sums are added up in the order of micro-steps.
// 4. After construction no call allocates and, with cached shards, none computes an address.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "base/view.hpp"

#include "device/device.hpp"
#include "layout/plan.hpp"
#include "layout/ring.hpp"

#include "comm/communicator.hpp"

#include "reduce/config.hpp"

namespace trireme::reduce {

class GradientStore {
 public:
  /// All of these outlive the store. Collective, because it allocates from the communicator.
  GradientStore(const layout::Plan& plan,
                const ParallelConfig& config,
                comm::Communicator& communicator,
                device::Device& device);

  [[nodiscard]] View gradient(ParameterIndex parameter) const { return views_[at(parameter)]; }
  /// Whole, padding included.
  [[nodiscard]] View bucket(BucketIndex bucket) const { return buckets_[at(bucket)].whole; }
  /// What the optimizer reads, after the last reduction: this rank's shard, or the whole bucket
  /// where nothing is sharded.
  [[nodiscard]] View own(BucketIndex bucket) const;
  /// How buckets share memory; none where each has its own.
  [[nodiscard]] const std::optional<layout::Ring>& ring() const { return ring_; }
  /// The memory of all buckets, padding included.
  [[nodiscard]] View all() const { return arena_.view(DType::f32); }
  /// fp32 gradients, the copy that travels, and the sums of micro-steps.
  [[nodiscard]] std::size_t bytes() const { return arena_.bytes() + wire_.bytes() + sums_.bytes(); }

  /// Looks the shards of the bucket up again: what cached shards spare.
  void find_shards(BucketIndex bucket);
  /// Requires: the bucket's gradients are complete when `stream` comes to it. `first`: of the
  /// micro-steps of this step.
  void reduce(BucketIndex bucket, bool first, device::Stream& stream);

 private:
  struct Bucket {
    View whole;
    View wire;  // what is reduced: the gradients themselves, or their rounded copy
    View sums;  // as reduced(), where micro-steps are reduced by themselves
    std::unique_ptr<comm::Shards> shards;
  };

  void allocate(const ParallelConfig& config);
  [[nodiscard]] View find(BucketIndex bucket) const;
  /// Of whole: what a reduction leaves on this rank.
  [[nodiscard]] View reduced(BucketIndex bucket) const;

  const layout::Plan& plan_;
  const bool sharded_, rounds_;
  const std::optional<layout::Ring> ring_;
  comm::Communicator& communicator_;
  device::Device& device_;
  device::Buffer arena_, wire_, sums_;
  std::vector<View> views_;  // by parameter
  std::vector<Bucket> buckets_;
};

}  // namespace trireme::reduce
