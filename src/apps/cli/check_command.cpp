// SPDX-License-Identifier: Apache-2.0
#include "cli/check_command.hpp"

#include <cstdint>
#include <string_view>

#include <fmt/format.h>

#include "base/text.hpp"

#include "model/gpt.hpp"

#include "cli/check_surroundings.hpp"
#include "deck/job.hpp"
#include "plan/deck_plan.hpp"

namespace trireme::cli {
namespace {

/// The parts of a model, except sizes, that differ from its preset or family.
std::string differences(const model::ModelConfig& config, const model::GptShape& shape) {
  model::ModelConfig usual;
  usual.preset = config.preset;
  usual.family = config.family;
  usual.layers = shape.layers;
  usual.heads = shape.heads;
  usual.channels = shape.channels;
  usual.context = shape.context;
  usual.vocabulary = shape.vocabulary;
  const auto known = deck::resolved_model(model::resolve(usual));
  constexpr std::size_t section = std::string_view("model.").size();
  std::string text;
  const auto add = [&](const std::string& key, const std::string& value) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", key, value);
  };
  for (const auto& [key, value] : deck::resolved_model(shape))
    if (known.at(key) != value)
      add(key.substr(section), value);
  if (shape.masks_documents())
    add("document_mask", "true");
  if (shape.z_loss > 0)
    add("z_loss", fmt::format("{}", shape.z_loss));
  if (text.empty())
    return text;
  const std::string as = config.preset != model::Preset::none && !config.family.given()
                             ? word(config.preset)
                             : word(config.family.value_or(model::Family::gpt2));
  return fmt::format("       different from {}: {}\n", as, text);
}

}  // namespace

std::string value_of(const std::string& deck_path,
                     const std::vector<std::string>& overrides,
                     const std::string& key,
                     const deck::Circumstances& circumstances) {
  const deck::Deck deck =
      deck::parse(deck::read_deck_file(deck_path), deck_path, overrides, circumstances);
  for (const auto& [path, value] : deck::job_of(deck).deck)
    if (path == key)
      return value + "\n";
  throw UserError(fmt::format("--value {}: unknown key (all keys: trireme help deck)", key));
}

std::string check_command(const std::string& deck_path,
                          const std::vector<std::string>& overrides,
                          const deck::Circumstances& circumstances) {
  const deck::Deck deck =
      deck::parse(deck::read_deck_file(deck_path), deck_path, overrides, circumstances);
  const plan::DeckPlan plan = plan::plan_of(deck, circumstances.ranks, circumstances.hosts);
  plan::expect_room(deck, plan);
  Surroundings around = look_around(deck, plan);
  if (!around.findings.empty()) {
    deck::sort(around.findings);
    throw UserError(std::move(around.findings));
  }
  return fmt::format("{}: no mistakes found for {} {}\n", deck_path, circumstances.ranks,
                     circumstances.ranks == 1 ? "rank" : "ranks") +
         summary(deck, circumstances.ranks) + plan::recompute_text(deck, plan) + around.notes +
         not_checked(deck);
}

std::string summary(const deck::Deck& deck, int ranks) {
  const deck::JobConfig& config = deck.config;
  const model::GptShape shape = deck.shape();
  const std::int64_t parameters = layout::total_elements(model::parameter_table(shape));
  const batches::BatchSizes sizes = config.batch.sizes();
  const auto count = [](auto number) { return count_text(static_cast<double>(number)); };
  std::string text = fmt::format(
      "model: {} parameters; {} layers, {} heads, {} channels, context {}, vocabulary {}\n",
      count(parameters), shape.layers, shape.heads, shape.channels, shape.context,
      shape.vocabulary);
  const model::GptShape gpt2;
  if (shape.norm != gpt2.norm || shape.activation != gpt2.activation ||
      shape.positions != gpt2.positions || shape.qk_norm != gpt2.qk_norm)
    text += fmt::format(
        "       {}{}{}, {} with {} channels, {} positions, {} key and value heads of {} channels, "
        "qk_norm {}\n",
        word(shape.norm), shape.norm_gain ? "" : " without gain",
        shape.embedding_norm ? " and of the embedding" : "", word(shape.activation),
        shape.mlp_channels(), word(shape.positions), shape.key_value_heads(), shape.head_channels(),
        word(shape.qk_norm));
  text += differences(config.model, shape);
  if (config.run.device != trireme::session::DeviceChoice::cpu &&
      config.run.precision != trireme::session::Precision::fp32)
    if (const std::string note = model::slow_attention_note(shape, DType::bf16); !note.empty())
      text += fmt::format("       note: {}\n", note);
  for (const batches::BatchSizes::Part& part : sizes.parts()) {
    const batches::Batches batch = trireme::session::batches_of(config, part.sequences, ranks);
    text += fmt::format(
        "{}{} sequences of {} tokens ({} tokens): {} {} x {} micro-{} of {} sequences\n",
        part.step == 1 ? "step:  " : fmt::format("       from step {}: ", part.step),
        part.sequences, shape.context, count(part.sequences * shape.context), ranks,
        ranks == 1 ? "rank" : "ranks", batch.micro_steps(),
        batch.micro_steps() == 1 ? "step" : "steps", batch.micro_sequences);
    if (const std::string note = batches::uneven_text(batch); !note.empty())
      text += fmt::format("       note: {}\n", note);
  }
  text += fmt::format("run:   {} steps, {} tokens, into {}\n", config.run.steps,
                      count(sizes.until(config.run.steps) * shape.context), config.run.directory);
  if (!config.run.initial_weights.empty())
    text += fmt::format(
        "start: from a checkpoint in {} if there is one, else from the weights in {}{}\n",
        config.run.directory, config.run.initial_weights,
        config.run.initial_rows == weights::InitialRows::exact
            ? ""
            : fmt::format(", rows of its embeddings: {}", word(config.run.initial_rows)));
  return text;
}

}  // namespace trireme::cli
