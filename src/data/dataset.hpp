// SPDX-License-Identifier: Apache-2.0
// Samples for training and validation. A sample is a window of context + 1 tokens that starts at a
// multiple of `context`: the first `context` of them are the input, the last `context` the targets.
// Windows share one token, so every token but the first is predicted exactly once per epoch; a
// rest shorter than a window is left out.
//
// 1. A sample is a pure function of (seed, global sample index): it does not depend on ranks,
// micro-batches or threads, and a resumed run only needs the index.
// 2. Training visits every window exactly once per epoch, each epoch in another order
// (sample_order.hpp); validation visits them front to back and starts over at the end.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/error.hpp"

#include "data/sample_order.hpp"
#include "data/token_stream.hpp"

namespace trireme::data {

/// Threads: const members are safe from several threads.
class Dataset {
 public:
  /// The tokens [begin, begin + count) of the stream; front to back without an order. Requires at
  /// least one window.
  Dataset(std::shared_ptr<const TokenStream> stream,
          std::int64_t begin,
          std::int64_t count,
          std::int64_t context,
          std::optional<std::uint64_t> shuffle_seed);

  [[nodiscard]] std::int64_t num_tokens() const { return count_; }
  /// Windows per epoch.
  [[nodiscard]] std::int64_t num_samples() const { return num_samples_; }
  [[nodiscard]] std::int64_t context() const { return context_; }
  /// Names the tokens that it shows: of the stream, and which part of it.
  [[nodiscard]] std::uint64_t content_hash() const;
  /// The window, counted from the front, that the global sample index shows.
  [[nodiscard]] std::int64_t window(std::int64_t sample) const;
  /// Both spans hold `context` tokens. targets[i] is the token after tokens[i]. Allocates nothing.
  void fill(std::int64_t sample,
            std::span<std::int32_t> tokens,
            std::span<std::int32_t> targets) const;

 private:
  std::shared_ptr<const TokenStream> stream_;
  std::int64_t begin_, count_, context_, num_samples_;
  std::optional<SampleOrder> order_;
};

/// Training data and, where validation_fraction > 0, validation data.
struct Split {
  Dataset train;
  std::optional<Dataset> validation;
};

/// Names the data of a run, training and validation: equal where, and only where, every token and
/// the border between the two are.
std::uint64_t content_hash(const Split& split);

/// What a step needs of the data.
struct Demand {
  std::int64_t context = 0;        ///< tokens
  std::int64_t sequences = 0;      ///< of the global batch
  std::int64_t vocabulary = 0;     ///< of the model
  double validation_fraction = 0;  ///< the last part of the tokens
  std::uint64_t seed = 0;
};

/// Where training ends and validation begins, in tokens: the validation part is the fraction,
/// rounded to the nearest token.
std::int64_t validation_begin(std::int64_t num_tokens, double validation_fraction);

/// Everything about `num_tokens` tokens that does not meet the demand: a training part shorter than
/// one global batch, a validation part shorter than one sequence, a vocabulary that does not hold
/// the tokens. Empty: all is well.
std::vector<Diagnostic> findings(std::int64_t num_tokens,
                                 std::int64_t stream_vocabulary,
                                 const Demand& demand);

/// Throws UserError with the findings.
Split split(const std::shared_ptr<const TokenStream>& stream, const Demand& demand);

}  // namespace trireme::data
