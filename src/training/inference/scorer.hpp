// SPDX-License-Identifier: Apache-2.0
// Computes a model's losses for rows of any length up to its context, and for token streams.
//
// A row is computed in the narrowest window that holds it (width_of), by the same model with the
// same parameters. Shorter rows are padded at the end, which does not affect the tokens before.
//
// 1. A row's losses depend on the row alone, not on other rows or on the number of threads. On a
//    GPU this is true up to rounding (model/gpt.hpp).
// 2. The model of a width is created when first needed, and keeps the activations of one block.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/view.hpp"
#include "device/buffer.hpp"
#include "device/device.hpp"
#include "device/pool.hpp"

#include "model/gpt.hpp"
#include "nn/hooks.hpp"
#include "ops/options.hpp"

#include "comm/control/interruption.hpp"
#include "comm/control/world.hpp"

#include "tokens/token_stream.hpp"

#include "session/share_out.hpp"

namespace trireme::inference {

/// targets[i] is the token after tokens[i]; a negative target has no loss. Equal lengths.
struct Row {
  std::vector<std::int32_t> tokens, targets;
};

/// The width of the window for this number of tokens: 64 times a power of two, at most the context.
std::int64_t width_of(std::int64_t tokens, std::int64_t context);

using session::Passes, session::share_out;

class Scorer {
 public:
  /// `parameters` as for Gpt::bind, `options` as for Gpt. Device, views, hooks, stream outlive it.
  Scorer(device::Device& device,
         const model::GptShape& shape,
         DType dtype,
         std::vector<ConstView> parameters,
         nn::Hooks& hooks,
         device::Stream& stream,
         const ops::Options& options = {},
         Passes passes = Passes::needed);
  ~Scorer();

  /// How many rows of a width are computed at a time: about one context of tokens.
  [[nodiscard]] std::int64_t rows_at_once(std::int64_t width) const;

  /// losses[r][i] of rows[r], 0 where there is no target, in nats. All rows are of one width, at
  /// most rows_at_once() of them. Complete at the return.
  std::vector<std::vector<float>> losses(std::span<const Row> rows);

  [[nodiscard]] const model::GptShape& shape() const { return shape_; }
  [[nodiscard]] Passes passes() const { return passes_; }

 private:
  struct Window;
  Window& window(std::int64_t width);

  device::Device& device_;
  const model::GptShape shape_;
  const DType dtype_;
  const std::vector<ConstView> parameters_;
  nn::Hooks& hooks_;
  device::Stream& stream_;
  const ops::Options options_;
  const Passes passes_;
  device::ScratchPool scratch_;
  std::map<std::int64_t, std::unique_ptr<Window>> windows_;
};

struct TokenLoss {
  std::int64_t tokens = 0;  ///< that were predicted
  std::int64_t bytes = 0;   ///< of text that they stand for; 0: not known
  double nats = 0;          ///< of all of them

  [[nodiscard]] double loss() const { return nats / static_cast<double>(tokens); }
  [[nodiscard]] double perplexity() const;
  /// NaN without bytes. A special token counts with its nats and no bytes.
  [[nodiscard]] double bits_per_byte() const;
};

/// The loss on a stream of tokens: of every token but the first. The stream is cut into windows of
/// `context` targets that share one token, as in training (batches/dataset.hpp); the last one may be
/// shorter. Rank r computes every ranks-th window (share_out.hpp). Each is computed separately, and
/// the sum is order-free, so the result has the same bits on any number of ranks.
/// Collective. `bytes_of`: bytes of text of each token; empty: not known. Requires two tokens.
/// Throws comm::Interrupted when `interrupts` is true on any rank.
TokenLoss token_loss(Scorer& scorer,
                     const tokens::TokenStream& stream,
                     std::span<const std::int32_t> bytes_of,
                     comm::World& world,
                     const comm::Wanted& interrupts = {});

}  // namespace trireme::inference
