// SPDX-License-Identifier: Apache-2.0
// trireme evaluate: a trained model's loss on text or tokens, and its answers to multiple choice,
// on any number of ranks with the same bits.
#include <cmath>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "base/error.hpp"
#include "base/json.hpp"
#include "base/log.hpp"

#include "comm/control/together.hpp"

#include "inference/evaluation_data.hpp"
#include "inference/loaded_model.hpp"
#include "inference/multiple_choice.hpp"
#include "inference/scorer.hpp"
#include "session/session.hpp"

#include "cli/options.hpp"
#include "cli/under_mpi.hpp"
#include "cli/verb.hpp"

namespace trireme::cli {
namespace {

struct EvaluateOptions {
  inference::ModelSource source;
  session::EvaluationSet data;
  std::string json;
};

/// The result, for people and as JSON, in which what is not known is null.
struct EvaluationReport {
  std::string table;
  Json json = {
      {"model", nullptr}, {"step", nullptr}, {"loss", nullptr}, {"multiple_choice", nullptr}};

  void add_row(const char* name, const std::string& value) {
    table += fmt::format("  {:<28}{}\n", name, value);
  }

  void add(const inference::TokenLoss& loss) {
    add_row("predicted tokens", fmt::format("{}", loss.tokens));
    add_row("loss, nats per token", fmt::format("{:.6f}", loss.loss()));
    add_row("perplexity", fmt::format("{:.4f}", loss.perplexity()));
    add_row("bits per byte",
            loss.bytes > 0 ? fmt::format("{:.6f} on {} bytes", loss.bits_per_byte(), loss.bytes)
                           : "not known: without a tokenizer, a token has no number of bytes");
    json["loss"] = {{"tokens", loss.tokens},
                    {"bytes", loss.bytes},
                    {"loss", loss.loss()},
                    {"perplexity", loss.perplexity()},
                    {"bits_per_byte", loss.bits_per_byte()}};
  }

  void add(const inference::ChoiceScores& scores) {
    add_row("questions", fmt::format("{}", scores.sum.of));
    Json& all = json["multiple_choice"] = {{"questions", scores.sum.of}};
    const auto accuracy = [&](const char* name, const char* key, const inference::Accuracy& one) {
      all[key] = nullptr;
      if (one.of == 0)
        return;
      add_row(name, one.of == 1
                        ? fmt::format("{:.4f}", one.value())
                        : fmt::format("{:.4f} +- {:.4f}", one.value(), one.standard_error()));
      all[key] = {
          {"value", one.value()}, {"standard_error", one.standard_error()}, {"right", one.right}};
    };
    accuracy("accuracy", "accuracy", scores.sum);
    accuracy("normalized by tokens", "accuracy_per_token", scores.per_token);
    accuracy("normalized by characters", "accuracy_per_character", scores.per_character);
  }
};

/// Collective. All findings about the data are thrown at once.
EvaluationReport evaluated(const EvaluateOptions& options, comm::World& world, Log& log) {
  const inference::LoadedModel loaded = inference::load_model(options.source, world, log);
  EvaluationReport report{.table = loaded.title() + "\n"};
  report.json["model"] = loaded.stored.path;
  if (loaded.from_checkpoint())
    report.json["step"] = loaded.stored.step;
  const text::Tokenizer* tokenizer =
      options.data.is_text() ? &loaded.known_tokenizer() : loaded.tokenizer.get();
  const auto option_of = [](std::size_t /*set*/, const std::string& key) {
    return key == "multiple_choice" ? "--multiple-choice" : "--" + key;
  };
  const auto data = inference::read_evaluation_data({options.data}, option_of, loaded.shape(),
                                                    tokenizer, world, log);
  nn::Hooks hooks;
  inference::Scorer scorer(*loaded.device, loaded.shape(), DType::f32, loaded.parameters.views,
                           hooks, *loaded.stream);
  const auto bytes_of = session::bytes_of_all_tokens(loaded.tokenizer.get());
  if (data[0].stream) {
    const inference::TokenLoss loss =
        inference::token_loss(scorer, *data[0].stream, bytes_of, world);
    if (!std::isfinite(loss.nats))
      throw UserError("the model's loss is not a number: its training has diverged");
    report.add(loss);
  }
  if (!data[0].questions.empty())
    report.add(inference::multiple_choice(scorer, data[0].questions, world));
  return report;
}

ExitCode evaluate(comm::World& world, const EvaluateOptions& options) {
  const session::EvaluationSet& data = options.data;
  if (data.text.empty() && data.tokens.empty() && data.multiple_choice.empty())
    throw UserError("there is nothing to evaluate. Give --text, --tokens or --multiple-choice.");
  comm::on_first_rank(world, [&] { expect_new_file(options.json); });
  Log log(false, fmt::format("rank {} {}", world.rank(), world.host()));
  const EvaluationReport report = evaluated(options, world, log);
  comm::on_first_rank(world,
                      [&] { give_result(report.table, options.json, json_text(report.json)); });
  return ExitCode::done;
}

}  // namespace

Action declare_evaluate(CLI::App& command) {
  const auto options = std::make_shared<EvaluateOptions>();
  session::EvaluationSet& data = options->data;
  add_model(command, options->source);
  auto* text = add_text(command, data.text);
  command
      .add_option("--tokens", data.tokens,
                  "Token files and globs: .bin of llm.c, or .bin of Megatron with .idx.")
      ->excludes(text);
  add_field(command, data.field)->needs(text);
  auto* choice = command.add_option("--multiple-choice", data.multiple_choice,
                                    "File of multiple-choice questions.");
  add_word(command, "--format",
           "Format of that file: hellaswag (of llm.c), or jsonl. Default: hellaswag.",
           EnumNames<batches::ChoiceFormat>::table, data.format)
      ->needs(choice);
  add_json(command, options->json);
  return [options](Arguments arguments) {
    return under_mpi(arguments, [&](comm::World& world) { return evaluate(world, *options); });
  };
}

}  // namespace trireme::cli
