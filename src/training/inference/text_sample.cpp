// SPDX-License-Identifier: Apache-2.0
#include "inference/text_sample.hpp"

#include <algorithm>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/packing.hpp"
#include "base/round_up.hpp"

#include "comm/control/together.hpp"

#include "inference/next_logits.hpp"

namespace trireme::inference {
namespace {

/// An empty prompt is the token that begins a text.
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

/// By number, which counts the samples of all prompts.
using Numbered = std::pair<std::int64_t, Generated>;

std::vector<Sampled> unpacked(const std::vector<std::string>& of_ranks,
                              std::int64_t samples,
                              const text::Tokenizer& tokenizer) {
  std::vector<Sampled> all;
  for (const std::string& bytes : of_ranks)
    for (auto& [number, text] : unpack<std::vector<Numbered>>(bytes)) {
      Sampled one;
      one.prompt = number / samples;
      one.sample = number % samples;
      one.end = text.end;
      one.tokens = std::move(text.tokens);
      one.text = decoded(tokenizer, one.tokens);
      all.push_back(std::move(one));
    }
  std::ranges::sort(all, [](const Sampled& a, const Sampled& b) {
    return a.prompt != b.prompt ? a.prompt < b.prompt : a.sample < b.sample;
  });
  return all;
}

}  // namespace

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
  const auto logits = without_cache(model, device, hooks, stream);
  const GenerateRequest text{
      prompt_tokens(tokenizer, request.prompt, false, tokenizer.end_of_text())};
  const auto drawn = generate(*logits, {&text, 1},
                              {.tokens = request.tokens,
                               .distribution = {.temperature = request.temperature},
                               .seed = request.seed,
                               .alphabet = tokenizer.vocabulary()},
                              decided);
  return decoded(tokenizer, drawn.at(0).tokens);
}

void sample_run(const SampleRequest& request,
                comm::World& world,
                Log& log,
                const SampleListener& listener) {
  LoadedModel loaded = load_model(request.source, world, log);
  const text::Tokenizer& tokenizer = loaded.known_tokenizer();
  const weights::Roles roles = weights::roles_of(loaded.stored);
  GenerateRules rules = request.rules;
  rules.alphabet = tokenizer.vocabulary();
  if (request.ends)
    rules.ends_of_text = roles.ends;
  const std::vector<std::string> prompts =
      unpack<std::vector<std::string>>(world.broadcast(pack(request.prompts), 0));
  const std::int64_t texts = std::ssize(prompts) * request.samples;
  const std::int64_t share = divided_up(texts, world.size());
  nn::Hooks hooks;
  std::optional<model::Gpt> gpt;
  std::unique_ptr<NextLogits> logits;
  if (request.cache) {
    logits = with_cache(*loaded.device, loaded.shape(), DType::f32, loaded.parameters.views,
                        std::clamp<std::int64_t>(share, 1, request.at_once), hooks, *loaded.stream);
  } else {
    gpt.emplace(*loaded.device, loaded.shape(), DType::f32, 1, 0);
    gpt->bind(loaded.parameters.views, {});
    logits = without_cache(*gpt, *loaded.device, hooks, *loaded.stream);
  }
  // Each round is a few times what grows at once, so that what ends early makes room.
  const std::int64_t round = std::int64_t{world.size()} * 4 * request.at_once;
  for (std::int64_t begin = 0; begin < texts; begin += round) {
    std::vector<GenerateRequest> mine;
    std::vector<std::int64_t> numbers;
    for (std::int64_t i = begin; i < std::min(texts, begin + round); ++i)
      if (i % world.size() == world.rank()) {
        mine.push_back(
            {prompt_tokens(tokenizer, prompts[static_cast<std::size_t>(i / request.samples)],
                           request.commands, roles.begin),
             static_cast<std::uint64_t>(i)});
        numbers.push_back(i);
      }
    std::vector<Numbered> made;
    comm::together(world, [&] {
      const auto decided = [&](std::size_t /*text*/, std::int32_t token) {
        if (texts == 1 && listener.decided)
          listener.decided(decoded(tokenizer, {&token, 1}));
      };
      auto texts_made = generate(*logits, mine, rules, decided);
      for (std::size_t i = 0; i < numbers.size(); ++i)
        made.emplace_back(numbers[i], std::move(texts_made[i]));
    });
    const auto of_ranks = world.gather(pack(made));
    comm::on_first_rank(world, [&] {
      for (const Sampled& one : unpacked(of_ranks, request.samples, tokenizer))
        listener.finished(one);
    });
  }
}

}  // namespace trireme::inference
