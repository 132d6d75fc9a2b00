// SPDX-License-Identifier: Apache-2.0
// The parameters as forward and backward read them, in the run's dtype: a view of each, and the
// publication of what the owners of shards have written.
//
//   current -> gathering -> current
//
// A gather is enqueued when the optimizer has enqueued its writes to a shard, and compute waits for
// it just before it first reads from the bucket. Two events cross streams:
//
//   updated  compute stream, after the writes; communication waits for it before gathering
//   end      communication stream, after the gather; compute waits for it before the first reader
//
// With shard: parameters the owners write to memory of their own, and whole buckets take turns in a
// few slots (layout/residency.hpp). A bucket is gathered when a layer asks for it or for the one
// before it, and again in backward; `updated` then says as well that the slot's last readers are
// through, and the gather begins with a copy of the rank's own shard.
//
// Not sharded, every rank writes whole buckets, nothing is gathered and all is current always.
//
// 1. Views are valid for the store's life; with shard: parameters those of buckets of one slot
// overlap, and hold what was last asked for.
// 2. After construction no call allocates and, with cached shards, none computes an address; but
// a step with more micro-steps than those before it makes events.
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
  [[nodiscard]] View own(BucketIndex bucket) const;
  [[nodiscard]] std::size_t bytes() const { return arena_.bytes() + owned_.bytes(); }
  /// Whether buckets are whole while a layer uses them only.
  [[nodiscard]] bool takes_turns() const { return residency_.has_value(); }

  /// Gathers count as those of the step with this number from now on.
  void begin_step(std::int64_t step);
  /// Forward begins soon: where buckets take turns, what it reads first is gathered.
  void begin_forward();
  /// The writes to own(bucket) of the step with this number are enqueued; `counts`: its times are a
  /// step's.
  void publish(BucketIndex bucket, std::int64_t step, bool counts);
  /// Compute waits until these are current. Cheap when they are. Where buckets take turns, nothing
  /// else is read any more that was asked for before.
  void before_use(std::span<const ParameterIndex> parameters);
  /// Compute waits for all gathers that are under way.
  void before_use_of_all();
  [[nodiscard]] bool gathering(BucketIndex bucket) const { return buckets_[at(bucket)].gathering; }

  [[nodiscard]] bool gathering() const { return num_gathering_ > 0; }
  /// Appends the times of the gathers for which compute waited in the step with this number, and
  /// counts them no more.
  void take_times(BucketIndex bucket, std::int64_t step, std::vector<GatherTimes>& times);

 private:
  struct Gather {
    EventPtr updated, start, end, wait_begin, wait_end;
  };
  /// Those that a step waits for, of which `num` are recorded.
  struct Gathers {
    std::vector<Gather> all;
    std::size_t num = 0;
  };
  struct Bucket {
    View whole;
    View own;  // where buckets take turns
    std::unique_ptr<comm::Shards> shards;
    std::array<Gathers, turns> of_steps;
    Gather of_no_step;
    Gather* latest = nullptr;
    bool gathering = false;
  };

  void gather(std::span<const layout::Residency::Gather> gathers);
  void begin(BucketIndex bucket);
  void add_gathers(Bucket& bucket);
  Gather& next_gather(Bucket& bucket);
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
  std::optional<std::size_t> turn_;  // that gathers count for at present
};

}  // namespace trireme::reduce
