// SPDX-License-Identifier: Apache-2.0
// Validation loss: the mean over the same sequences every time, without dropout.
//
// The sequences are cut into micro-batches of `micro_sequences` by their position; rank r of N
// takes every N-th. So each micro-batch has the same shape and the same bits with any number of
// ranks, and so has the loss, which is an order-free sum. In the last round a rank without a
// micro-batch computes that of another rank and does not count it, because the model may gather
// parameters, which all ranks must do together.
//
// Bits per byte: the nats of all predicted tokens, divided by ln 2 and the bytes of text of these
// tokens. A special token has nats but no bytes. In this unit, losses of different vocabularies can
// be compared.
#pragma once

#include <cstdint>
#include <span>

#include "device/device.hpp"

#include "model/gpt.hpp"

#include "comm/control/interruption.hpp"
#include "comm/control/world.hpp"

#include "batches/dataset.hpp"

#include "session/microbatch.hpp"

namespace trireme::session {

/// `nats` of tokens with `bytes` bytes of text, in bits per byte; NaN if `bytes` is 0.
double bits_per_byte(double nats, std::int64_t bytes);

struct Evaluation {
  double loss = 0;           ///< mean, nats per token
  double bits_per_byte = 0;  ///< NaN: not known
};

class Evaluator {
 public:
  /// `sequences`: the number of validation samples to use. `bytes_of`: bytes of text of each token;
  /// empty: not known.
  Evaluator(const batches::Dataset& validation,
            std::int64_t sequences,
            MicroBatch& micro_batch,
            std::span<const std::int32_t> bytes_of,
            comm::World& world);

  /// Collective; the same value on every rank. Throws comm::Interrupted when `interrupts` is true
  /// on any rank.
  Evaluation evaluate(model::Gpt& model,
                      model::Hooks& hooks,
                      device::Stream& stream,
                      const comm::Wanted& interrupts = {});

  [[nodiscard]] std::int64_t sequences() const { return sequences_; }

 private:
  const batches::Dataset& validation_;
  const std::int64_t sequences_;
  MicroBatch& micro_batch_;
  const std::span<const std::int32_t> bytes_of_;
  comm::World& world_;
};

}  // namespace trireme::session
