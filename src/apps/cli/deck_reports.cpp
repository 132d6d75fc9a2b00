// SPDX-License-Identifier: Apache-2.0
#include "cli/deck_reports.hpp"

#include <cstdint>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "base/text.hpp"
#include "files/output_file.hpp"

#include "model/gpt.hpp"

#include "train/span_sample.hpp"

#include "cli/check_surroundings.hpp"
#include "deck/references.hpp"
#include "deck/survey.hpp"
#include "plan/deck_plan.hpp"
#include "plan/machine.hpp"
#include "plan/plan_text.hpp"
#include "plan/scaling.hpp"

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

std::string summary(const deck::Deck& deck, int ranks) {
  const deck::JobConfig& config = deck.config;
  const model::GptShape shape = deck.shape();
  const std::int64_t parameters = layout::total_elements(model::parameter_table(shape));
  const batches::BatchSizes sizes = config.batch.sizes();
  std::string text = fmt::format(
      "model: {} parameters; {} layers, {} heads, {} channels, context {}, vocabulary {}\n",
      count_text(parameters), shape.layers, shape.heads, shape.channels, shape.context,
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
  if (config.run.device != session::DeviceChoice::cpu &&
      config.run.precision != session::Precision::fp32)
    if (const std::string note = model::slow_attention_note(shape, DType::bf16); !note.empty())
      text += fmt::format("       note: {}\n", note);
  for (const batches::BatchSizes::Part& part : sizes.parts()) {
    const batches::Batches batch = session::batches_of(config, part.sequences, ranks);
    text += fmt::format(
        "{}{} sequences of {} tokens ({} tokens): {} x {} of {} sequences\n",
        part.step == 1 ? "step:  " : fmt::format("       from step {}: ", part.step),
        part.sequences, shape.context, count_text(part.sequences * shape.context),
        counted(ranks, "rank"), counted(batch.micro_steps(), "micro-step"), batch.micro_sequences);
    if (const std::string note = batches::uneven_text(batch); !note.empty())
      text += fmt::format("       note: {}\n", note);
  }
  text +=
      fmt::format("run:   {}, {} tokens, into {}\n", counted(config.run.steps, "step"),
                  count_text(sizes.until(config.run.steps) * shape.context), config.run.directory);
  if (!config.run.initial_weights.empty())
    text += fmt::format(
        "start: from a checkpoint in {} if there is one, else from the weights in {}{}\n",
        config.run.directory, config.run.initial_weights,
        config.run.initial_rows == weights::InitialRows::exact
            ? ""
            : fmt::format(", rows of its embeddings: {}", word(config.run.initial_rows)));
  return text;
}

/// A note about each size of the batch with which some ranks idle; else "".
std::string batch_note(const deck::JobConfig& config, int ranks) {
  std::string notes;
  const batches::BatchSizes sizes = config.batch.sizes();
  for (const batches::BatchSizes::Part& part : sizes.parts())
    if (const std::string note =
            batches::uneven_text(session::batches_of(config, part.sequences, ranks));
        !note.empty())
      notes += fmt::format("\nnote: {}\n", note);
  return notes;
}

/// Which spans the record of a run on this number of ranks contains.
std::string record_note(const deck::JobConfig& config, const layout::Plan& plan) {
  if (!config.record.spans)
    return {};
  const auto spans = train::spans_of_a_step(
      config.parallel, session::most_micro_steps(config, plan.all_ranks()),
      static_cast<std::int64_t>(plan.buckets().size()), config.optimizer.kind == optim::Kind::muon);
  return fmt::format(
      "\nrun.h5: {}; statistics over all ranks every {} steps\n",
      train::sample_of(config.record, plan.all_ranks(), config.run.steps, spans).text(),
      train::collect_every_steps);
}

}  // namespace

std::string value_of(const DeckArguments& arguments,
                     const std::string& key,
                     const deck::Circumstances& circumstances) {
  for (const auto& [path, value] : deck::job_of(deck_of(arguments, circumstances)).deck)
    if (path == key)
      return deck::plain_text(value) + "\n";
  throw UserError(fmt::format("--value {}: unknown key (all keys: trireme help deck)", key));
}

std::string check_command(const DeckArguments& arguments,
                          const deck::Circumstances& circumstances) {
  std::vector<Diagnostic> findings;
  const deck::Deck deck = deck::examine(deck::read_deck_file(arguments.path), arguments.path,
                                        arguments.overrides, circumstances, findings);
  const bool valid = findings.empty();
  const std::int64_t free = look_for_files(deck, findings);
  if (!valid)
    deck::settle(std::move(findings), arguments.overrides);
  const plan::DeckPlan plan = plan::plan_of(deck, circumstances.ranks, circumstances.hosts);
  plan::expect_room(deck, plan);
  const std::string notes = look_around(deck, plan, free, findings);
  deck::settle(std::move(findings), arguments.overrides);
  return fmt::format("{}: no mistakes found for {}\n", arguments.path,
                     counted(circumstances.ranks, "rank")) +
         summary(deck, circumstances.ranks) + plan::recompute_text(deck, plan) + notes +
         not_checked(deck);
}

std::string plan_command(const DeckArguments& arguments,
                         deck::Circumstances circumstances,
                         const PlanOutput& output) {
  circumstances.trains = false;
  const deck::Deck deck = deck_of(arguments, circumstances);
  if (circumstances.hosts > circumstances.ranks)
    throw UserError(fmt::format("--hosts {}: {} cannot use more hosts than ranks",
                                circumstances.hosts, counted(circumstances.ranks, "rank")));
  const plan::DeckPlan plan =
      plan::plan_with_choices(deck, circumstances.ranks, circumstances.hosts);
  plan::expect_room(deck, plan);
  std::optional<plan::Scaling> scaling;
  if (!output.machine_path.empty())
    scaling = plan::scaling_of(deck, plan::read_machine(output.machine_path), output.scaling_ranks,
                               circumstances.hosts);
  const std::string json = plan::plan_json(plan, scaling ? plan::scaling_json(*scaling) : Json());
  if (output.json_path == "-")
    return json;
  if (!output.json_path.empty())
    files::write_new_file(output.json_path, json);
  const std::string recompute = plan::recompute_text(deck, plan);
  return plan::plan_text(plan) + "\n" +
         memory_note(deck, plan,
                     (circumstances.ranks + circumstances.hosts - 1) / circumstances.hosts) +
         (recompute.empty() ? "" : "\n" + recompute) +
         (output.schedule ? "\n" + plan::schedule_text(plan.schedule) : "") + "\n" +
         plan::data_text(deck.config, deck.shape().context) + record_note(deck.config, plan.plan) +
         batch_note(deck.config, circumstances.ranks) +
         (scaling ? "\n" + plan::scaling_text(*scaling) : "");
}

}  // namespace trireme::cli
