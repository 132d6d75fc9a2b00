// SPDX-License-Identifier: Apache-2.0
#include "inference/generate.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/random.hpp"

namespace trireme::inference {
namespace {

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

/// A text that grows in a slot.
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

const char* name(GenerateEnd end) {
  switch (end) {
    case GenerateEnd::length:
      break;
    case GenerateEnd::end_of_text:
      return "end_of_text";
    case GenerateEnd::repetition:
      return "repetition";
  }
  return "length";
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

}  // namespace trireme::inference
