// SPDX-License-Identifier: Apache-2.0
// Texts from a model, one token after another, several at a time.
//
// Token i of sample s is drawn with counter (i, s) of (seed, Draw::text): the same seed, parameters
// and prompt give the same tokens whatever else is generated at the same time, and on any number of
// ranks and threads.
//
// A text ends for one of these reasons:
//   length       `tokens` tokens were generated
//   end_of_text  this token, if one is named, was drawn; it is not part of the text
//   repetition   when the newest `repetition` tokens occur in it already, a second time in a row or
//                anywhere before, where that number is not 0; prompts do not count.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "base/key.hpp"

#include "text/tokenizer.hpp"

#include "inference/next_logits.hpp"

namespace trireme::inference {

struct Distribution {
  /// 0: take the most likely token; of equally likely ones, that with the lowest id.
  double temperature = 1.0;
  std::int64_t top_k = 0;  ///< 0: all
  double top_p = 1.0;      ///< above 0; 1: all
};

/// Draws one token. The logits are divided by the temperature. Of the tokens, the top_k most likely
/// are kept, and of these the smallest set whose probabilities reach top_p. The token is drawn from
/// that set. Of equally likely tokens the lower id counts as more likely. Source of top_p: Holtzman
/// et al. 2020, "The curious case of neural text degeneration", section 3.1.
///
/// `a` and `b` are the random words. Without top_k and top_p, the draw goes through the tokens in
/// order; with them, through those that stay, in order as well.
/// Throws: UserError when the logits hold no finite maximum (a diverged model).
std::int32_t draw_token(std::span<const float> logits,
                        const Distribution& distribution,
                        std::uint32_t a,
                        std::uint32_t b);

enum class GenerateEnd : std::uint8_t { length, end_of_text, repetition };

struct GenerateRules {
  std::int64_t tokens = 64;  ///< the most that are generated
  Distribution distribution{};
  std::uint64_t seed = 0;
  /// Only ids below this number are drawn: a vocabulary may be padded beyond its tokenizer. 0: all.
  std::int64_t alphabet = 0;
  std::vector<std::int32_t> ends_of_text{};
  std::int64_t repetition = 0;
};

struct GenerateRequest {
  std::vector<std::int32_t> prompt;  ///< at least one token
  std::uint64_t sample = 0;          ///< selects the random numbers
};

struct Generated {
  std::vector<std::int32_t> tokens;
  GenerateEnd end = GenerateEnd::length;

  auto fields() { return std::tie(tokens, end); }
};

/// Whether the newest `count` tokens also occur earlier in `tokens`; false for 0.
bool repeats(std::span<const std::int32_t> tokens, std::int64_t count);

/// Generates a text after each prompt, as many at a time as `model` has slots. `decided`, if any,
/// is called for each token when it is drawn, with the number of its request.
std::vector<Generated> generate(NextLogits& model,
                                std::span<const GenerateRequest> requests,
                                const GenerateRules& rules,
                                const std::function<void(std::size_t, std::int32_t)>& decided = {});

/// The tokens of a prompt. `commands`: whether special tokens may be spelled out in it. For an
/// empty prompt: `begin`, the token that begins a text, or else a line break.
std::vector<std::int32_t> prompt_tokens(const text::Tokenizer& tokenizer,
                                        const std::string& prompt,
                                        bool commands,
                                        const std::optional<std::int32_t>& begin);
std::string decoded(const text::Tokenizer& tokenizer, std::span<const std::int32_t> tokens);

}  // namespace trireme::inference
