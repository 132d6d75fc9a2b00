// SPDX-License-Identifier: Apache-2.0
#include "inference/evaluate_run.hpp"

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/json.hpp"

#include "inference/scorer.hpp"
#include "session/session.hpp"

namespace trireme::inference {
namespace {

Json json_of(const Accuracy& accuracy) {
  return {{"value", accuracy.value()},
          {"standard_error", accuracy.standard_error()},
          {"right", accuracy.right}};
}

}  // namespace

Evaluated evaluate_run(const EvaluateRequest& request, comm::World& world, Log& log) {
  LoadedModel loaded = load_model(request.source, world, log);
  Evaluated evaluated;
  evaluated.title = loaded.title();
  evaluated.path = loaded.stored.path;
  if (loaded.from_checkpoint())
    evaluated.step = loaded.stored.step;
  const text::Tokenizer* tokenizer =
      request.data.is_text() ? &loaded.known_tokenizer() : loaded.tokenizer.get();
  const auto data = read_evaluation_data({request.data}, loaded.shape(), tokenizer, world);
  nn::Hooks hooks;
  Scorer scorer(*loaded.device, loaded.shape(), DType::f32, loaded.parameters.views, hooks,
                *loaded.stream);
  const std::vector<std::int32_t> bytes_of = session::bytes_of_all_tokens(loaded.tokenizer.get());
  if (data[0].stream)
    evaluated.loss = token_loss(scorer, *data[0].stream, bytes_of, world);
  if (!data[0].questions.empty())
    evaluated.choices = multiple_choice(scorer, data[0].questions, world);
  return evaluated;
}

std::string evaluation_table(const Evaluated& evaluated) {
  std::string table = evaluated.title + "\n";
  const auto row = [&](const char* name, const std::string& value) {
    table += fmt::format("  {:<28}{}\n", name, value);
  };
  if (evaluated.loss) {
    row("predicted tokens", fmt::format("{}", evaluated.loss->tokens));
    row("loss, nats per token", fmt::format("{:.6f}", evaluated.loss->loss()));
    row("perplexity", fmt::format("{:.4f}", evaluated.loss->perplexity()));
    row("bits per byte", evaluated.loss->bytes > 0
                             ? fmt::format("{:.6f} on {} bytes", evaluated.loss->bits_per_byte(),
                                           evaluated.loss->bytes)
                             : "not known: without a tokenizer, a token has no number of bytes");
  }
  if (evaluated.choices) {
    const ChoiceScores& scores = *evaluated.choices;
    const auto accuracy = [&](const char* name, const Accuracy& one) {
      row(name, fmt::format("{:.4f} +- {:.4f}", one.value(), one.standard_error()));
    };
    row("questions", fmt::format("{}", scores.sum.of));
    accuracy("accuracy", scores.sum);
    accuracy("normalized by tokens", scores.per_token);
    if (scores.per_character.of > 0)
      accuracy("normalized by characters", scores.per_character);
  }
  return table;
}

std::string evaluation_json(const Evaluated& evaluated) {
  Json json = {{"model", evaluated.path},
               {"step", nullptr},
               {"loss", nullptr},
               {"multiple_choice", nullptr}};
  if (evaluated.step)
    json["step"] = *evaluated.step;
  if (const auto& loss = evaluated.loss)
    json["loss"] = {{"tokens", loss->tokens},
                    {"bytes", loss->bytes},
                    {"loss", loss->loss()},
                    {"perplexity", loss->perplexity()},
                    {"bits_per_byte", loss->bits_per_byte()}};
  if (const auto& scores = evaluated.choices)
    json["multiple_choice"] = {
        {"questions", scores->sum.of},
        {"accuracy", json_of(scores->sum)},
        {"accuracy_per_token", json_of(scores->per_token)},
        {"accuracy_per_character",
         scores->per_character.of > 0 ? json_of(scores->per_character) : Json()}};
  return json_text(json);
}

}  // namespace trireme::inference
