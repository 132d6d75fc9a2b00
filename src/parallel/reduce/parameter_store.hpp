// SPDX-License-Identifier: Apache-2.0
// The parameters that forward and backward read, in the run's dtype: a view of each, and the
// gathers that distribute the shards after their owners have updated them (docs/design/parallel.md,
// "Sharded parameters"). Two events of a gather cross streams:
//
//   updated  compute stream, after the writes and, if buckets share slots, after the last reads of
//            the slot; communication waits for it before gathering
//   end      communication stream, after the gather; compute waits for it before the first reader
//
// Without shards every rank writes whole buckets, nothing is gathered, and all parameters are
// always current.
//
// 1. Views are valid for the lifetime of the store. If buckets share slots, views of buckets of one
//    slot overlap, and show the bucket that was gathered last.
// 2. After construction no call allocates and, with cached shards, none computes an address.
//    Exception: a step with more micro-steps than all before it creates events.
// 3. All members are called from the host thread that enqueues on the compute stream.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/view.hpp"
#include "device/device.hpp"
#include "layout/plan.hpp"
#include "layout/residency.hpp"

#include "comm/communicator.hpp"
#include "reduce/bucket_times.hpp"
#include "reduce/collective_queue.hpp"
#include "reduce/config.hpp"

namespace trireme::reduce {

class ParameterStore final : private CollectiveQueue::Source {
 public:
  /// All of these must outlive the store. Collective, because it allocates from the communicator.
  ParameterStore(const layout::Plan& plan,
                 DType dtype,
                 const ParallelConfig& config,
                 comm::Communicator& communicator,
                 device::Device& device,
                 device::Stream& compute,
                 CollectiveQueue& queue);

  [[nodiscard]] DType dtype() const { return dtype_; }
  [[nodiscard]] View parameter(ParameterIndex parameter) const { return views_[at(parameter)]; }
  /// The whole bucket with padding.
  [[nodiscard]] View bucket(BucketIndex bucket) const { return buckets_[at(bucket)].whole; }
  /// The parameters that this rank updates: its shard, or the whole bucket if nothing is sharded.
  [[nodiscard]] View own(BucketIndex bucket) const;
  [[nodiscard]] std::size_t bytes() const { return arena_.bytes() + owned_.bytes(); }
  /// Whether buckets share slots, so that a bucket is whole only while a layer uses it.
  [[nodiscard]] bool shares_slots() const { return residency_ && residency_->shares_slots(); }

  /// From now on gathers are counted for the step with this number.
  void begin_step(std::int64_t step);
  /// Call before forward. If buckets share slots, gathers those that forward reads first.
  void begin_forward();
  /// Call when the writes to own(bucket) in the step with this number are enqueued. `counts`:
  /// whether the gather's times belong to a step.
  void publish(BucketIndex bucket, std::int64_t step, bool counts);
  /// Compute waits until these parameters are current. Cheap when they are. If buckets share slots,
  /// the parameters of earlier calls must not be read any more.
  void before_use(std::span<const ParameterIndex> parameters);
  /// Compute waits until all parameters are current or, if buckets share slots, for all gathers
  /// that have been enqueued.
  void before_use_of_all();
  /// Compute waits for all gathers that have been enqueued.
  void await_gathers();
  [[nodiscard]] bool gathering(BucketIndex bucket) const { return buckets_[at(bucket)].gathering; }
  [[nodiscard]] bool gathering() const { return num_gathering_ > 0; }
  /// Appends the times of the gathers for which compute waited in the step with this number.
  /// Returns each gather once.
  void take_times(BucketIndex bucket, std::int64_t step, std::vector<GatherTimes>& times);

 private:
  /// The gathers that a step waits for; the first `num` are in use.
  struct Gathers {
    std::vector<BucketEvents> all;
    std::size_t num = 0;
  };
  struct Bucket {
    View whole;
    View own;  // if buckets share slots
    std::unique_ptr<comm::Shards> shards;
    std::array<Gathers, event_sets> of_steps;
    BucketEvents of_no_step;
    BucketEvents* latest = nullptr;
    bool gathering = false;
  };

  void gather(std::span<const layout::Residency::Gather> gathers);
  void begin(BucketIndex bucket);
  void add_gathers(Bucket& bucket);
  BucketEvents& next_gather(Bucket& bucket);
  void start(BucketIndex bucket) override;
  void wait(BucketIndex bucket);
  [[nodiscard]] Bucket& at_bucket(BucketIndex bucket) { return buckets_[at(bucket)]; }

  const layout::Plan& plan_;
  const DType dtype_;
  const bool sharded_, overlaps_, cached_;
  std::optional<layout::Residency> residency_;
  comm::Communicator& communicator_;
  device::Device& device_;
  device::Stream& compute_;
  CollectiveQueue& queue_;
  device::Buffer arena_, owned_;
  std::vector<View> views_;  // by parameter
  std::vector<Bucket> buckets_;
  std::size_t num_gathering_ = 0;
  std::optional<std::size_t> event_set_;  // event set in which gathers are counted
};

}  // namespace trireme::reduce
