// SPDX-License-Identifier: Apache-2.0
// The input and output buffers of one micro-batch: tokens and targets in, one loss per token out.
// Allocated once.
#pragma once

#include <cstdint>

#include "device/device.hpp"

#include "data/dataset.hpp"

#include "model/gpt.hpp"

namespace trireme::train {

class MicroBatch {
 public:
  MicroBatch(device::Device& device, std::int64_t sequences, std::int64_t context);

  /// The largest number of sequences.
  [[nodiscard]] std::int64_t sequences() const { return sequences_; }
  [[nodiscard]] std::size_t bytes() const {
    return tokens_.bytes() + targets_.bytes() + losses_.bytes();
  }

  /// Samples [first, first + count) of `dataset`. The buffers must not be in use on any stream.
  void load(const data::Dataset& dataset, std::int64_t first, std::int64_t count);

  [[nodiscard]] model::Batch batch() const;
  /// [count, context] fp32.
  [[nodiscard]] View losses() const;

 private:
  const std::int64_t sequences_;
  const std::int64_t context_;
  device::Buffer tokens_;
  device::Buffer targets_;
  device::Buffer losses_;
  std::int64_t count_ = 0;
  std::int64_t first_ = 0;
};

}  // namespace trireme::train
