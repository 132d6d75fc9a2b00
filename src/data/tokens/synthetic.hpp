// SPDX-License-Identifier: Apache-2.0
// Made-up tokens that a model can learn, for benchmarks and tests: no file, any length, any
// vocabulary. The stream is a chain of phrases of 16 tokens, each drawn from a book of 64 phrases
// of random tokens. A model that has learned the book and sees the beginning of a phrase predicts
// the rest; what remains is the choice of the next phrase, ln(64) / 16 = 0.26 nats per token.
//
// A token is a pure function of (seed, vocabulary, index).
#pragma once

#include <cstdint>
#include <span>

#include "base/random.hpp"

#include "tokens/token_stream.hpp"

namespace trireme::tokens {

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
