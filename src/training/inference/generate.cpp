// SPDX-License-Identifier: Apache-2.0
#include "inference/generate.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.hpp"
#include "base/random.hpp"

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

/// The tokens that may be drawn, in increasing order.
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

void expect_valid(const NextLogits& model,
                  std::span<const GenerateRequest> requests,
                  const GenerateRules& rules) {
  const std::int64_t V = model.shape().vocabulary;
  TRIREME_EXPECT(
      rules.tokens >= 0 && rules.repetition >= 0 && rules.alphabet >= 0 && rules.alphabet <= V,
      "{} tokens of an alphabet of {} from a vocabulary of {}, repetition {}", rules.tokens,
      rules.alphabet, V, rules.repetition);
  for (const GenerateRequest& request : requests) {
    TRIREME_EXPECT(!request.prompt.empty(), "a sample needs a prompt of at least one token");
    for (const std::int32_t token : request.prompt)
      TRIREME_EXPECT(token >= 0 && token < V, "token {} in a vocabulary of {}", token, V);
  }
}

struct Growing {
  std::size_t request = 0, slot = 0;
  std::vector<std::int32_t> text;  ///< the prompt, and what was drawn
};

/// The next token of a text; false when it ends before it.
bool append(Growing& growing,
            const GenerateRequest& request,
            const GenerateRules& rules,
            std::span<const float> logits,
            Generated& to) {
  const Words4 words =
      philox(RandomKey::of(rules.seed, Draw::text), to.tokens.size(), request.sample);
  const std::int32_t token = draw_token(logits, rules.distribution, words.w[0], words.w[1]);
  if (std::ranges::find(rules.ends_of_text, token) != rules.ends_of_text.end()) {
    to.end = GenerateEnd::end_of_text;
    return false;
  }
  growing.text.push_back(token);
  to.tokens.push_back(token);
  return true;
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

bool repeats(std::span<const std::int32_t> tokens, std::int64_t count) {
  if (count <= 0 || std::ssize(tokens) <= count)
    return false;
  const auto newest = tokens.last(static_cast<std::size_t>(count));
  return !std::ranges::search(tokens.first(tokens.size() - 1), newest).empty();
}

std::vector<Generated> generate(NextLogits& model,
                                std::span<const GenerateRequest> requests,
                                const GenerateRules& rules,
                                const std::function<void(std::size_t, std::int32_t)>& decided) {
  expect_valid(model, requests, rules);
  const auto V = static_cast<std::size_t>(model.shape().vocabulary);
  const std::size_t alphabet = rules.alphabet > 0 ? static_cast<std::size_t>(rules.alphabet) : V;
  std::vector<Generated> all(requests.size());
  std::vector<Growing> growing;
  std::vector<NextLogits::Request> slot_requests;
  std::vector<float> logits;
  std::size_t next = 0;
  std::vector<std::size_t> free(static_cast<std::size_t>(model.slots()));
  for (std::size_t i = 0; i < free.size(); ++i) free[i] = free.size() - 1 - i;
  while (rules.tokens > 0) {
    for (; !free.empty() && next < requests.size(); ++next, free.pop_back())
      growing.push_back({next, free.back(), requests[next].prompt});
    if (growing.empty())
      break;
    slot_requests.clear();
    for (const Growing& one : growing) slot_requests.push_back({one.slot, one.text});
    logits.resize(growing.size() * V);
    model.after(slot_requests, logits);
    std::vector<Growing> still;
    for (std::size_t i = 0; i < growing.size(); ++i) {
      Growing& one = growing[i];
      Generated& to = all[one.request];
      bool continues =
          append(one, requests[one.request], rules, std::span(logits).subspan(i * V, alphabet), to);
      if (continues && decided)
        decided(one.request, to.tokens.back());
      if (continues && repeats(to.tokens, rules.repetition)) {
        to.end = GenerateEnd::repetition;
        continues = false;
      }
      if (continues && std::ssize(to.tokens) < rules.tokens)
        still.push_back(std::move(one));
      else
        free.push_back(one.slot);
    }
    growing = std::move(still);
  }
  return all;
}

std::vector<std::int32_t> prompt_tokens(const text::Tokenizer& tokenizer,
                                        const std::string& prompt,
                                        bool commands,
                                        const std::optional<std::int32_t>& begin) {
  std::vector<std::int32_t> tokens;
  if (commands)
    tokenizer.encode_commands(prompt, tokens);
  else
    tokenizer.encode(prompt, tokens);
  if (const auto first = tokenizer.begin_of_text();
      first && (tokens.empty() || tokens.front() != *first))
    tokens.insert(tokens.begin(), *first);
  if (tokens.empty() && begin)
    tokens.push_back(*begin);
  else if (tokens.empty())
    tokenizer.encode("\n", tokens);
  return tokens;
}

std::string decoded(const text::Tokenizer& tokenizer, std::span<const std::int32_t> tokens) {
  std::string text;
  tokenizer.decode(tokens, text);
  return text;
}

}  // namespace trireme::inference
