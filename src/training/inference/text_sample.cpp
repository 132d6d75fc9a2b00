// SPDX-License-Identifier: Apache-2.0
#include "inference/text_sample.hpp"

#include <fmt/format.h>

#include "base/error.hpp"

#include "inference/generate.hpp"
#include "inference/next_logits.hpp"

namespace trireme::inference {

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

std::string continue_text(model::Gpt& model,
                          device::Device& device,
                          const text::Tokenizer& tokenizer,
                          const TextRequest& request,
                          model::Hooks& hooks,
                          device::Stream& stream,
                          const std::function<void(std::size_t, std::int32_t)>& decided) {
  if (model.shape().vocabulary < tokenizer.vocabulary())
    throw UserError(
        fmt::format("the model's vocabulary of {} is smaller than the tokenizer's {} tokens",
                    model.shape().vocabulary, tokenizer.vocabulary()));
  NextLogits logits(model, device, hooks, stream);
  const GenerateRequest text{
      prompt_tokens(tokenizer, request.prompt, false, tokenizer.end_of_text())};
  const auto drawn = generate(logits, {&text, 1},
                              {.tokens = request.tokens,
                               .distribution = {.temperature = request.temperature},
                               .seed = request.seed,
                               .alphabet = tokenizer.vocabulary()},
                              decided);
  return decoded(tokenizer, drawn.at(0).tokens);
}

}  // namespace trireme::inference
