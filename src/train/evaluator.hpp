// SPDX-License-Identifier: Apache-2.0
// Validation loss: the mean over the same sequences every time, without dropout.
//
// The sequences are cut into micro-batches of `micro_sequences` by position alone; rank r takes
// every ranks-th of them. Each micro-batch thus has the same shape and the same bits at any rank
// count, and so has the loss, which is an order-free sum.
#pragma once

#include <cstdint>

#include "device/device.hpp"

#include "comm/world.hpp"
#include "data/dataset.hpp"

#include "model/gpt.hpp"

#include "train/microbatch.hpp"

namespace trireme::train {

class Evaluator {
 public:
  /// `sequences`: how many of the validation samples to use.
  Evaluator(const data::Dataset& validation,
            std::int64_t sequences,
            MicroBatch& micro_batch,
            comm::World& world);

  /// All ranks call; all get the same value.
  double mean_loss(model::Gpt& model, model::Hooks& hooks, device::Stream& stream);

  [[nodiscard]] std::int64_t sequences() const { return sequences_; }

 private:
  const data::Dataset& validation_;
  const std::int64_t sequences_;
  MicroBatch& micro_batch_;
  comm::World& world_;
};

}  // namespace trireme::train
