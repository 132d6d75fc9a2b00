// SPDX-License-Identifier: Apache-2.0
// Computes the loss of a trained model on a stream of tokens: the mean over every token but the
// first.
//
// The stream is cut into windows of `context` targets that share one token, as in training
// (batches/dataset.hpp); the last one may be shorter. Rank r computes every ranks-th window
// (share_out.hpp). Each is computed separately, and the sum is order-free, so the result has the
// same bits on any number of ranks.
#pragma once

#include <cstdint>
#include <span>

#include "comm/control/interruption.hpp"
#include "comm/control/world.hpp"

#include "tokens/token_stream.hpp"

#include "inference/scorer.hpp"

namespace trireme::inference {

struct TokenLoss {
  std::int64_t tokens = 0;  ///< that were predicted
  std::int64_t bytes = 0;   ///< of text that they stand for; 0: not known
  double nats = 0;          ///< of all of them

  [[nodiscard]] double loss() const { return nats / static_cast<double>(tokens); }
  [[nodiscard]] double perplexity() const;
  /// NaN without bytes. A special token counts with its nats and no bytes.
  [[nodiscard]] double bits_per_byte() const;
};

/// Collective. `bytes_of`: bytes of text of each token; empty: not known. Requires two tokens.
/// Throws comm::Interrupted when `interrupts` is true on any rank.
TokenLoss token_loss(Scorer& scorer,
                     const tokens::TokenStream& stream,
                     std::span<const std::int32_t> bytes_of,
                     comm::World& world,
                     const comm::Wanted& interrupts = {});

}  // namespace trireme::inference
