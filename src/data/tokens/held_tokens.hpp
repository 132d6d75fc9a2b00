// SPDX-License-Identifier: Apache-2.0
// Streams of tokens that are in no token file: tokens in memory, text that is encoded without a
// cache, for data that are read once and are small compared with a training corpus, and made-up
// tokens.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/random.hpp"

#include "text/tokenizer.hpp"
#include "tokens/text_format.hpp"
#include "tokens/token_stream.hpp"

namespace trireme::tokens {

class HeldTokens final : public TokenStream {
 public:
  /// Throws ContractError for a token that is not below `vocabulary`.
  HeldTokens(std::vector<std::int32_t> tokens, std::int64_t vocabulary, std::string description);

 private:
  void copy(std::int64_t begin, std::span<std::int32_t> out) const override;

  const std::vector<std::int32_t> tokens_;
};

/// All documents of the files that `entries` name (sources.hpp), in order, each after the
/// tokenizer's end-of-text token, as in a run's token cache. `key` names the entries in findings.
/// Throws UserError as find_text() and Documents do.
std::vector<std::int32_t> encode_text(const std::vector<std::string>& entries,
                                      const TextFormat& format,
                                      const text::Tokenizer& tokenizer,
                                      const std::string& key);

/// Made-up tokens that a model can learn, for benchmarks and tests: no file, any length, any
/// vocabulary. The stream is a chain of phrases of 16 tokens, each drawn from a book of 64 phrases
/// of random tokens. A model that has learned the book and sees the beginning of a phrase predicts
/// the rest; what remains is the choice of the next phrase, ln(64) / 16 = 0.26 nats per token.
///
/// A token is a pure function of (seed, vocabulary, index).
class SyntheticTokens : public TokenStream {
 public:
  static constexpr std::int64_t phrase_tokens = 16;
  static constexpr std::int64_t phrases = 64;

  /// Requires size >= 1 and vocabulary >= 1.
  SyntheticTokens(std::int64_t size, std::int64_t vocabulary, std::uint64_t seed);

 private:
  void copy(std::int64_t begin, std::span<std::int32_t> out) const override;

  RandomKey key_;
};

}  // namespace trireme::tokens
