// SPDX-License-Identifier: Apache-2.0
// What an optimizer sends between ranks by itself, in turn with the engine's collectives: pieces of
// a bucket's owned gradients there, and back (optim/matrices.hpp).
//
// The Carrier sends; this class gives it its turn, on the communication stream and beside compute.
// Two events cross streams, as for a gather (parameter_store.hpp):
//
//   given   compute stream, after the last write to what is sent and the last reader of what is
//           written over; communication waits for it before sending
//   end     communication stream, after the transfer; compute waits for it before the first reader
//
// 1. At most one transfer per bucket, way and step. Compute waits for each in the same step.
// 2. Transfers run in the order of begin(), which is the same on all ranks. Compute's order, also
//    that of wait(), may differ between ranks.
// 3. Where overlap_parameters is off, compute waits right after begin().
// 4. While collectives are held, a transfer begins without the gathers that were pushed before it
//    (CollectiveQueue::Source::overtakes): these are held until the next step, as without transfers.
// 5. After carry_by() no call allocates.
// 6. All members are called from the host thread that enqueues on the compute stream.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/index.hpp"
#include "device/device.hpp"

#include "reduce/bucket_times.hpp"
#include "reduce/collective_queue.hpp"

namespace trireme::reduce {

/// Sends for an optimizer.
class Carrier {
 public:
  virtual ~Carrier() = default;
  /// Enqueues the transfer of this bucket's pieces on `stream`. Collective.
  virtual void carry(BucketIndex bucket, Way way, device::Stream& stream) = 0;
};

class Transfers {
 public:
  /// All of these outlive the object.
  Transfers(device::Device& device, device::Stream& compute, CollectiveQueue& queue, bool overlaps);

  /// From now on `carrier` sends for these buckets; null: nobody does. What the carrier before it
  /// has begun is over when this returns.
  void carry_by(Carrier* carrier, std::span<const BucketIndex> buckets);
  void begin_step(std::int64_t step);
  void begin(BucketIndex bucket, Way way);
  void wait(BucketIndex bucket, Way way);
  /// Appends the times of the step with this number, or the one before the current one.
  void take_times(std::int64_t step, std::vector<TransferTimes>& times) const;

 private:
  struct Events {
    EventPtr given, start, end, wait_begin, wait_end;
    bool happened = false;  // in the step of this turn
  };
  struct Transfer {
    BucketIndex bucket{};
    std::array<Events, turns> of_steps;
    bool under_way = false;  // compute has not waited for it yet
  };
  /// One way of all buckets.
  class Direction final : public CollectiveQueue::Source {
   public:
    Direction(Transfers& all, Way way) : all_(all), way_(way) {}
    void start(BucketIndex bucket) override;
    [[nodiscard]] bool overtakes() const override { return true; }
    Transfer& of(BucketIndex bucket);

    std::vector<Transfer> transfers;

   private:
    Transfers& all_;
    const Way way_;
  };

  Direction& direction(Way way) { return way == Way::there ? there_ : back_; }
  void await_all();

  device::Device& device_;
  device::Stream& compute_;
  CollectiveQueue& queue_;
  const bool overlaps_;
  Carrier* carrier_ = nullptr;
  std::size_t turn_ = 0;
  Direction there_{*this, Way::there}, back_{*this, Way::back};
};

}  // namespace trireme::reduce
