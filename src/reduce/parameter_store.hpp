// SPDX-License-Identifier: Apache-2.0
// The parameters as forward and backward read them: one arena in the run's dtype, a view of each
// parameter, and the publication of what the owners of shards have written.
//
//   current -> gathering -> current
//
// A gather is enqueued when the optimizer has enqueued its writes to a shard, and compute waits for
// it just before it first reads from the bucket. Two events cross streams:
//
//   updated  compute stream, after the writes; communication waits for it before gathering
//   end      communication stream, after the gather; compute waits for it before the first reader
//
// Not sharded, every rank writes whole buckets, nothing is gathered and all is current always.
//
// 1. Views are valid for the store's life.
// 2. After construction no call allocates and, with cached shards, none computes an address.
// 3. All members are called from the host thread that enqueues on the compute stream.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/view.hpp"

#include "device/device.hpp"
#include "layout/plan.hpp"

#include "comm/communicator.hpp"

#include "reduce/bucket_times.hpp"
#include "reduce/collective_queue.hpp"
#include "reduce/config.hpp"

namespace trireme::reduce {

class ParameterStore final : private CollectiveQueue::Source {
 public:
  /// All of these outlive the store. Collective, because it allocates from the communicator.
  ParameterStore(const layout::Plan& plan,
                 DType dtype,
                 const ParallelConfig& config,
                 comm::Communicator& communicator,
                 device::Device& device,
                 device::Stream& compute,
                 CollectiveQueue& queue);

  [[nodiscard]] DType dtype() const { return dtype_; }
  [[nodiscard]] View parameter(ParameterIndex parameter) const { return views_[at(parameter)]; }
  /// Whole, padding included.
  [[nodiscard]] View bucket(BucketIndex bucket) const { return buckets_[at(bucket)].whole; }
  /// What this rank updates: its shard, or the whole bucket where nothing is sharded.
  [[nodiscard]] View own(BucketIndex bucket) const {
    const Bucket& one = buckets_[at(bucket)];
    return sharded_ ? one.shards->own : one.whole;
  }
  [[nodiscard]] std::size_t bytes() const { return arena_.bytes(); }

  /// The writes to own(bucket) of the step with this number are enqueued; `counts`: its times are a
  /// step's.
  void publish(BucketIndex bucket, std::int64_t step, bool counts);
  /// Compute waits until these are current. Cheap when they are.
  void before_use(std::span<const ParameterIndex> parameters);
  void before_use_of_all();
  [[nodiscard]] bool gathering(BucketIndex bucket) const { return buckets_[at(bucket)].gathering; }

  /// Adds the times of the gather for which compute waited in the step with this number, where
  /// there was one, and counts it no more.
  void take_times(BucketIndex bucket, std::int64_t step, BucketTimes& times);
  /// As above, of the latest gather. Requires: before_use_of_all().
  void take_last_times(BucketIndex bucket, BucketTimes& times);

 private:
  struct Gather {
    EventPtr updated, start, end, wait_begin, wait_end;
    bool counts = false;  // recorded by a step, and not yet in its times
  };
  struct Bucket {
    View whole;
    std::unique_ptr<comm::Shards> shards;
    std::array<Gather, turns> gathers;
    std::size_t latest = 0;  // of `gathers`
    bool gathering = false;
  };

  void start(BucketIndex bucket) override;
  void wait(BucketIndex bucket);
  static void take(Gather& gather, BucketTimes& times);
  [[nodiscard]] Bucket& at_bucket(BucketIndex bucket) { return buckets_[at(bucket)]; }

  const layout::Plan& plan_;
  const DType dtype_;
  const bool sharded_, overlaps_, cached_;
  comm::Communicator& communicator_;
  device::Stream& compute_;
  CollectiveQueue& queue_;
  device::Buffer arena_;
  std::vector<View> views_;  // by parameter
  std::vector<Bucket> buckets_;
  std::size_t num_gathering_ = 0;
};

}  // namespace trireme::reduce
