// SPDX-License-Identifier: Apache-2.0
#include "inference/draw.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/error.hpp"

namespace trireme::inference {
namespace {

using Weights = std::vector<double>;
using Tokens = std::vector<std::int32_t>;

/// How many of `tokens`, which are reordered, reach `share` of their weights, the heaviest first.
std::size_t count_reaching(double share, Tokens& tokens, const Weights& weights) {
  const auto heavier = [&](std::int32_t a, std::int32_t b) {
    const double x = weights[static_cast<std::size_t>(a)];
    const double y = weights[static_cast<std::size_t>(b)];
    return x != y ? x > y : a < b;
  };
  double total = 0;
  for (const std::int32_t token : tokens) total += weights[static_cast<std::size_t>(token)];
  double sum = 0;
  std::size_t sorted = 0, count = 0;
  while (count < tokens.size()) {
    if (count == sorted) {  // few are needed as a rule
      sorted = std::min(tokens.size(), std::max<std::size_t>(64, 8 * sorted));
      std::partial_sort(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(sorted),
                        tokens.end(), heavier);
    }
    sum += weights[static_cast<std::size_t>(tokens[count++])];
    if (sum >= share * total)
      break;
  }
  return count;
}

/// The tokens that stay, in increasing order.
Tokens kept_tokens(std::span<const float> logits,
                   const Weights& weights,
                   const Distribution& distribution) {
  Tokens tokens(logits.size());
  std::iota(tokens.begin(), tokens.end(), 0);
  const auto k = static_cast<std::size_t>(distribution.top_k);
  if (k > 0 && k < tokens.size()) {
    std::ranges::nth_element(tokens, tokens.begin() + static_cast<std::ptrdiff_t>(k),
                             [&](std::int32_t a, std::int32_t b) {
                               const float x = logits[static_cast<std::size_t>(a)];
                               const float y = logits[static_cast<std::size_t>(b)];
                               return x != y ? x > y : a < b;
                             });
    tokens.resize(k);
  }
  if (distribution.top_p < 1)
    tokens.resize(count_reaching(distribution.top_p, tokens, weights));
  std::ranges::sort(tokens);
  return tokens;
}

}  // namespace

std::int32_t draw_token(std::span<const float> logits,
                        const Distribution& distribution,
                        std::uint32_t a,
                        std::uint32_t b) {
  TRIREME_EXPECT(!logits.empty() && distribution.temperature >= 0 && distribution.top_k >= 0 &&
                     distribution.top_p > 0 && distribution.top_p <= 1,
                 "{} logits, temperature {}, top_k {}, top_p {}", logits.size(),
                 distribution.temperature, distribution.top_k, distribution.top_p);
  const bool defined = std::ranges::none_of(logits, [](float logit) { return std::isnan(logit); });
  const auto best = std::ranges::max_element(logits);
  if (!defined || !std::isfinite(*best))
    throw UserError("the model's output is not a number: its training has diverged");
  if (distribution.temperature == 0)
    return static_cast<std::int32_t>(best - logits.begin());

  const double top = static_cast<double>(*best);
  Weights weights(logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i)
    weights[i] = std::exp((static_cast<double>(logits[i]) - top) / distribution.temperature);
  const Tokens tokens = kept_tokens(logits, weights, distribution);
  double total = 0;
  for (const std::int32_t token : tokens) total += weights[static_cast<std::size_t>(token)];
  const auto word = (static_cast<std::uint64_t>(a) << 32U) | b;
  const double target = static_cast<double>(word >> 11U) * 0x1.0p-53 * total;
  double sum = 0;
  for (const std::int32_t token : tokens) {
    sum += weights[static_cast<std::size_t>(token)];
    if (target < sum)
      return token;
  }
  return static_cast<std::int32_t>(best - logits.begin());  // target < total: not reached
}

}  // namespace trireme::inference
