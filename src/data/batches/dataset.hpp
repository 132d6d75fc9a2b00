// SPDX-License-Identifier: Apache-2.0
// Samples for training and validation. A sample is a window of context + 1 tokens: the first
// `context` of them are the input, the last `context` the targets. Windows start at multiples of
// `context`, so they share one token, and every token but the first is predicted exactly once per
// epoch; a rest shorter than a window is left out. With `data.rows: documents` they start where
// tokens/rows.hpp defines.
//
// A dataset has one part, or those of a mixture (sample_order.hpp).
//
// 1. A sample is a pure function of (seed, global sample index, position): it does not depend on
//    ranks, micro-batches or threads, and a resumed run only needs the index and the position.
// 2. Training visits every window of a part exactly once per epoch of that part, each epoch in
//    another order (sample_order.hpp); validation visits them front to back and starts over at the
//    end.
// 3. The position states from which global sample index on this mixture has been in force, and how
//    many samples of each part had been seen before. It is 0 and none at a run's beginning, and
//    moves only where a run continues with other parts or weights: samples before stay what they
//    were, a part that is in both continues where it was, and a new part begins with its first
//    epoch.
// 4. Training leaves out the samples of data.skip: the others keep their indices, also within
//    epochs and parts.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "batches/batches.hpp"
#include "batches/sample_order.hpp"
#include "tokens/token_stream.hpp"

namespace trireme::corpus {
struct TokenizeRequest;
}

namespace trireme::batches {

/// Tokens [begin, begin + count) of a stream, cut into windows.
class Windows {
 public:
  /// `rows`: where windows start; null: at multiples of `context`. Requires at least one window.
  Windows(std::shared_ptr<const tokens::TokenStream> stream,
          std::int64_t begin,
          std::int64_t count,
          std::int64_t context,
          std::shared_ptr<const std::vector<std::int64_t>> rows = nullptr);

  [[nodiscard]] std::int64_t size() const { return size_; }
  [[nodiscard]] std::int64_t num_tokens() const { return count_; }
  [[nodiscard]] std::int64_t context() const { return context_; }
  /// Identifies the tokens that it shows: the stream, the part of it, and how it is cut.
  [[nodiscard]] std::uint64_t content_hash() const;
  void fill(std::int64_t window,
            std::span<std::int32_t> tokens,
            std::span<std::int32_t> targets) const;
  /// The token of the stream with which a window starts.
  [[nodiscard]] std::int64_t start(std::int64_t window) const {
    return rows_ ? (*rows_)[static_cast<std::size_t>(first_row_ + window)]
                 : begin_ + window * context_;
  }

 private:
  std::shared_ptr<const tokens::TokenStream> stream_;
  std::shared_ptr<const std::vector<std::int64_t>> rows_;
  std::int64_t begin_, count_, context_;
  std::int64_t first_row_ = 0, size_ = 0;
};

/// Threads: const members are safe from several threads.
class Dataset {
 public:
  /// As many quotas as parts, which add up to MixtureOrder::block; front to back without a seed.
  Dataset(std::vector<Windows> parts,
          std::vector<std::int64_t> quotas,
          std::optional<std::uint64_t> shuffle_seed,
          Skips skips = {});

  /// Tokens of all parts.
  [[nodiscard]] std::int64_t num_tokens() const;
  /// Windows of all parts.
  [[nodiscard]] std::int64_t num_samples() const;
  [[nodiscard]] std::int64_t context() const { return parts_.front().context(); }
  [[nodiscard]] const std::vector<Windows>& parts() const { return parts_; }
  /// Identifies what it shows: the parts and their quotas.
  [[nodiscard]] std::uint64_t content_hash() const;
  [[nodiscard]] const Skips& skips() const { return skips_; }
  /// The first global sample index whose window is known: where this mixture begins.
  [[nodiscard]] std::int64_t base() const { return base_; }
  /// What a global sample index shows: a part, and its window, counted from the front.
  struct Window {
    std::size_t part;
    std::int64_t number, epoch;
  };
  [[nodiscard]] Window window(std::int64_t sample) const;
  /// Both spans hold `context` tokens. targets[i] is the token after tokens[i]. Allocates nothing
  /// with one part, and now and then with several.
  void fill(std::int64_t sample,
            std::span<std::int32_t> tokens,
            std::span<std::int32_t> targets) const;
  /// How many samples of each part the first `samples` of the order hold.
  [[nodiscard]] std::vector<std::int64_t> seen(std::int64_t samples) const;

  /// The position as text, for a checkpoint, and how to continue from one whose next sample is
  /// `next_sample`. "" is the position at the beginning of a run. Throws UserError for other text.
  [[nodiscard]] std::string position() const;
  void continue_from(const std::string& position, std::int64_t next_sample);

 private:
  std::vector<Windows> parts_;
  MixtureOrder mixture_;
  std::vector<std::optional<SampleOrder>> orders_;
  Skips skips_;
  std::uint64_t seed_ = 0;
  std::int64_t base_ = 0;           ///< the position: its global sample index
  std::vector<std::int64_t> seen_;  ///< samples of each part before base_
};

/// Training data and, where there are any, validation data.
struct Split {
  Dataset train;
  std::optional<Dataset> validation;
};

/// Identifies the data of a run, training and validation: equal if and only if every token and the
/// border between the two are equal.
std::uint64_t content_hash(const Split& split);

/// What a step needs of the data.
struct DataRequirements {
  std::int64_t context = 0;        ///< tokens
  std::int64_t sequences = 0;      ///< of the global batch
  std::int64_t vocabulary = 0;     ///< of the model
  double validation_fraction = 0;  ///< the last part of the tokens
  std::uint64_t seed = 0;
  Skips skips = {};
};

/// One source, opened.
struct Stream {
  std::shared_ptr<const tokens::TokenStream> tokens;
  std::shared_ptr<const std::vector<std::int64_t>> rows = {};  ///< of `data.rows: documents`
  std::string key = "data.train";                              ///< what the deck calls it
  double weight = 1;
  /// At the end of the tokens, for validation; -1: the fraction of the demand.
  std::int64_t validation_tokens = -1;
  /// Of shards and of encoded text, for provenance.hpp.
  std::vector<tokens::TokenFile> files = {};
  std::vector<std::int64_t> marks = {};  ///< TokenFiles::marks
  std::shared_ptr<const corpus::TokenizeRequest> text = {};
};

struct Sources {
  std::vector<Stream> train;  ///< several: a mixture
  std::optional<Stream> validation;
};

/// Where validation begins, in tokens; the validation part is rounded to the nearest token.
std::int64_t validation_begin(std::int64_t num_tokens, double validation_fraction);

/// Training data of one source or of a mixture. Without `validation`, one source gives its fraction
/// of its tokens to it. Throws UserError with everything that does not meet `requirements`: a
/// training part shorter than one global batch, parts and validation data shorter than one
/// sequence, weights that give a part no place, a vocabulary that does not hold the tokens.
Split split(const std::vector<Stream>& train,
            const std::optional<Stream>& validation,
            const DataRequirements& requirements);

}  // namespace trireme::batches
