// SPDX-License-Identifier: Apache-2.0
// The transfers of an optimizer that sends parts of a bucket's owned gradients to other ranks and
// back (optim/matrices.hpp), ordered with the engine's collectives.
//
// A TransferSender enqueues each transfer; this class decides when, on the communication stream,
// overlapping with compute. Two events cross streams, as for a gather (parameter_store.hpp):
//
//   ready   compute stream, after the last write to the data that is sent and the last read of the
//           memory that is overwritten; communication waits for it before sending
//   end     communication stream, after the transfer; compute waits for it before the first reader
//
// 1. At most one transfer per bucket, direction and step. Compute waits for each in the same step.
// 2. Transfers run in the order of begin(), which is the same on all ranks. The order of compute
//    and of wait() may differ between ranks.
// 3. If overlap_parameters is off, compute waits right after begin().
// 4. While collectives are held, a transfer begins without the gathers that were pushed before it
//    (CollectiveQueue::Source::overtakes), which are held until the next step, as without
//    transfers.
// 5. After set_sender() no call allocates.
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

/// Implemented by the optimizer that sends.
class TransferSender {
 public:
  virtual ~TransferSender() = default;
  /// Enqueues the transfer of this bucket's data on `stream`. Collective.
  virtual void enqueue(BucketIndex bucket, Direction direction, device::Stream& stream) = 0;
};

class Transfers {
 public:
  /// All of these must outlive the object.
  Transfers(device::Device& device, device::Stream& compute, CollectiveQueue& queue, bool overlaps)
      : device_(device), compute_(compute), queue_(queue), overlaps_(overlaps) {}

  /// Sets the sender for these buckets; null: none. Waits for transfers of the previous sender,
  /// which must not be destroyed earlier.
  void set_sender(TransferSender* sender, std::span<const BucketIndex> buckets);
  void begin_step(std::int64_t step);
  /// Enqueues a transfer after all work enqueued so far on compute and in the queue of collectives.
  void begin(BucketIndex bucket, Direction direction);
  /// Compute waits for this transfer of the current step.
  void wait(BucketIndex bucket, Direction direction);
  /// Appends the times of the step with this number, or the one before the current one.
  void take_times(std::int64_t step, std::vector<TransferTimes>& times) const;

 private:
  struct Events : BucketEvents {
    bool begun = false;  // in the step that uses this set
  };
  struct Transfer {
    BucketIndex bucket{};
    std::array<Events, event_sets> of_steps;
    bool pending = false;  // compute has not waited for it yet
  };
  /// The transfers of all buckets in one direction.
  class Channel final : public CollectiveQueue::Source {
   public:
    Channel(Transfers& all, Direction direction) : all_(all), direction_(direction) {}
    void start(BucketIndex bucket) override;
    [[nodiscard]] bool overtakes() const override { return true; }
    Transfer& of(BucketIndex bucket);

    std::vector<Transfer> transfers;

   private:
    Transfers& all_;
    const Direction direction_;
  };

  Channel& channel(Direction direction) {
    return direction == Direction::send ? send_ : send_back_;
  }
  void await_all();

  device::Device& device_;
  device::Stream& compute_;
  CollectiveQueue& queue_;
  const bool overlaps_;
  TransferSender* sender_ = nullptr;
  std::size_t event_set_ = 0;
  Channel send_{*this, Direction::send}, send_back_{*this, Direction::send_back};
};

}  // namespace trireme::reduce
