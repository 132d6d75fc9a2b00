// SPDX-License-Identifier: Apache-2.0
// The buffers of a micro-batch, allocated once: tokens, targets, first sample's number, losses.
//
// On a GPU the host fills page-locked memory, and a separate stream copies it to the GPU while
// compute still works on the previous micro-batch; so there are two slots, used alternately. For
// each slot, compute waits for `arrived`, and the copy into the slot waits for `consumed`. Before
// filling a slot, the host waits for the last copy from it. On a CPU there is one slot, and the
// host writes to the memory that compute reads.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "device/device.hpp"

#include "model/gpt.hpp"

#include "batches/dataset.hpp"
#include "batches/read_ahead.hpp"

namespace trireme::session {

class MicroBatch {
 public:
  MicroBatch(device::Device& device, std::int64_t sequences, std::int64_t context);

  /// The largest number of sequences.
  [[nodiscard]] std::int64_t sequences() const { return sequences_; }

  /// Loads samples [first, first + count) of `dataset` for the next work on `compute`. Requires:
  /// all work on the previous micro-batch has been enqueued there; on a CPU it has ended.
  void load(const batches::Dataset& dataset,
            std::int64_t first,
            std::int64_t count,
            device::Stream& compute);

  void load(const batches::ReadAhead::Block& block, device::Stream& compute);

  /// Targets of the last load, in host memory.
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
  /// Waits until the next slot is free, and returns it.
  Slot& next_slot(device::Stream& compute);
  /// Copies the filled slot to the device; compute waits for it.
  void send(Slot& slot, std::int64_t first, std::int64_t count, device::Stream& compute);
  [[nodiscard]] std::uint64_t* first_sample(const device::Buffer& buffer) const;

  const std::int64_t sequences_;
  const std::int64_t context_;
  std::vector<Slot> slots_;
  device::Buffer losses_;
  std::unique_ptr<device::Stream> copies_;  // on a GPU only; destroyed before the memory
  std::size_t current_ = 0;
  std::int64_t count_ = 0;
};

}  // namespace trireme::session
