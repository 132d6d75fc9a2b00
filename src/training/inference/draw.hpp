// SPDX-License-Identifier: Apache-2.0
// Draws one token from logits.
//
// The logits are divided by the temperature. Of the tokens, the top_k most likely are kept, and of
// these the smallest set whose probabilities reach top_p. The token is drawn from that set. Of
// equally likely tokens the lower id counts as more likely. Source of top_p: Holtzman et al. 2020,
// "The curious case of neural text degeneration", section 3.1.
#pragma once

#include <cstdint>
#include <span>

namespace trireme::inference {

struct Distribution {
  /// 0 takes the most likely token, the lowest of equals.
  double temperature = 1.0;
  std::int64_t top_k = 0;  ///< 0: all
  double top_p = 1.0;      ///< above 0; 1: all
};

/// `a` and `b` are the random words. Without top_k and top_p, the draw goes through the tokens in
/// order; with them, through those that stay, in order as well.
/// Throws: UserError when the logits hold no finite maximum (a diverged model).
std::int32_t draw_token(std::span<const float> logits,
                        const Distribution& distribution,
                        std::uint32_t a,
                        std::uint32_t b);

}  // namespace trireme::inference
