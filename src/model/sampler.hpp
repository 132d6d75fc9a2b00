// SPDX-License-Identifier: Apache-2.0
// Text from a model, one token after another.
//
// Token i of a sample is drawn with counter i of (seed, Draw::text): the same seed, parameters and
// prompt give the same tokens on any number of ranks and threads. When prompt and sample outgrow
// the context, the window keeps the newest tokens.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/gpt.hpp"

namespace trireme::model {

struct SampleRequest {
  std::int64_t count = 64;  ///< tokens to generate
  /// Logits are divided by it; 0 takes the most likely token, the lowest of equals.
  double temperature = 1.0;
  std::uint64_t seed = 0;
  /// Only tokens below are drawn: a vocabulary may be padded beyond its tokenizer. 0: all.
  std::int64_t alphabet = 0;
};

/// One token from logits: `a` and `b` are the random words.
/// Throws: UserError when the logits hold no finite maximum (a diverged model).
std::int32_t draw_token(std::span<const float> logits,
                        double temperature,
                        std::uint32_t a,
                        std::uint32_t b);

/// The `request.count` tokens that follow `prompt`, which holds at least one token.
std::vector<std::int32_t> generate(Gpt& gpt,
                                   device::Device& device,
                                   std::span<const std::int32_t> prompt,
                                   const SampleRequest& request,
                                   Hooks& hooks,
                                   device::Stream& stream);

}  // namespace trireme::model
