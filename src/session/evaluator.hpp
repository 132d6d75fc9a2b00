// SPDX-License-Identifier: Apache-2.0
// Validation loss: the mean over the same sequences every time, without dropout.
//
// The sequences are cut into micro-batches of `micro_sequences` by position alone; rank r takes
// every ranks-th of them. Each micro-batch thus has the same shape and the same bits at any rank
// count, and so has the loss, which is an order-free sum.
// A rank without one of its own in the last round computes another rank's and does not count it:
// the model may gather parameters while it runs, which all ranks do together.
//
// Bits per byte: the nats of all predicted tokens, over ln 2 times the bytes of text that these
// tokens stand for. A special token counts with its nats and no bytes. Losses of different
// vocabularies can be compared so.
#pragma once

#include <cstdint>
#include <span>

#include "device/device.hpp"

#include "comm/control/world.hpp"
#include "data/dataset.hpp"

#include "model/gpt.hpp"

#include "session/microbatch.hpp"

namespace trireme::session {

/// `nats` of tokens that stand for `bytes` of text, in bits per byte; NaN without bytes.
double bits_per_byte(double nats, std::int64_t bytes);

struct Evaluation {
  double loss = 0;           ///< mean, nats per token
  double bits_per_byte = 0;  ///< NaN: not known
};

class Evaluator {
 public:
  /// `sequences`: how many of the validation samples to use. `bytes_of`: bytes of text of each
  /// token; empty: not known.
  Evaluator(const data::Dataset& validation,
            std::int64_t sequences,
            MicroBatch& micro_batch,
            std::span<const std::int32_t> bytes_of,
            comm::World& world);

  /// All ranks call; all get the same value.
  Evaluation evaluate(model::Gpt& model, model::Hooks& hooks, device::Stream& stream);

  [[nodiscard]] std::int64_t sequences() const { return sequences_; }

 private:
  const data::Dataset& validation_;
  const std::int64_t sequences_;
  MicroBatch& micro_batch_;
  const std::span<const std::int32_t> bytes_of_;
  comm::World& world_;
};

}  // namespace trireme::session
