// SPDX-License-Identifier: Apache-2.0
// The input and output buffers of one micro-batch: tokens, targets and the number of the first
// sample in, one loss per token out. Allocated once.
//
// On a GPU the host fills page-locked memory, and a stream of its own copies it ahead of compute,
// while compute still works on the micro-batch before: hence two slots in turns. Per slot, compute
// waits for `arrived`, and the copy into the slot waits for `consumed`. The host waits for the copy
// that last left the slot, one micro-batch after. On a CPU there is one slot, and the host fills
// what compute reads.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "device/device.hpp"

#include "data/dataset.hpp"
#include "data/read_ahead.hpp"

#include "model/gpt.hpp"

namespace trireme::session {

class MicroBatch {
 public:
  MicroBatch(device::Device& device, std::int64_t sequences, std::int64_t context);

  /// The largest number of sequences.
  [[nodiscard]] std::int64_t sequences() const { return sequences_; }

  /// Samples [first, first + count) of `dataset`, for the next work on `compute`. What the last
  /// micro-batch is needed for has been enqueued there; on a CPU's stream it is done.
  void load(const data::Dataset& dataset,
            std::int64_t first,
            std::int64_t count,
            device::Stream& compute);

  /// A block that was read ahead, whose first sample is `first`.
  void load(const data::ReadAhead::Block& block, std::int64_t first, device::Stream& compute);

  /// Of the last load, in host memory.
  [[nodiscard]] std::span<const std::int32_t> targets() const;
  [[nodiscard]] model::Batch batch() const;
  /// [count, context] fp32.
  [[nodiscard]] View losses() const;

 private:
  struct Slot {
    device::Buffer host;    // tokens, targets, the first sample's number
    device::Buffer device;  // the copy; empty on a CPU
    std::unique_ptr<device::Event> arrived, consumed;
  };
  [[nodiscard]] const device::Buffer& read_by_compute() const;
  /// The slot to fill, when it is free.
  Slot& next_slot(device::Stream& compute);
  /// Sends what was filled to compute.
  void send(Slot& slot, std::int64_t first, std::int64_t count, device::Stream& compute);
  [[nodiscard]] std::uint64_t* first_sample(const device::Buffer& buffer) const;

  const std::int64_t sequences_;
  const std::int64_t context_;
  std::vector<Slot> slots_;
  device::Buffer losses_;
  std::unique_ptr<device::Stream> copies_;  // a GPU's only; goes before the memory
  std::size_t current_ = 0;
  std::int64_t count_ = 0;
};

}  // namespace trireme::session
