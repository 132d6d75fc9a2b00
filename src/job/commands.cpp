// SPDX-License-Identifier: Apache-2.0
#include "job/commands.hpp"

#include <cstdint>

#include <fmt/format.h>

#include "base/text.hpp"

#include "model/gpt.hpp"

namespace trireme::job {

std::string check_command(const std::string& deck_path,
                          const std::vector<std::string>& overrides,
                          const Circumstances& circumstances) {
  const Deck deck = parse(read_deck_file(deck_path), deck_path, overrides, circumstances);
  return fmt::format("{}: no mistakes found for {} {}\n", deck_path, circumstances.ranks,
                     circumstances.ranks == 1 ? "rank" : "ranks") +
         summary(deck.config, circumstances.ranks);
}

std::string summary(const JobConfig& config, int ranks) {
  const trireme::model::GptShape shape = shape_of(config);
  std::int64_t parameters = 0;
  for (const layout::Parameter& parameter : trireme::model::parameter_table(shape))
    parameters += parameter.elements();
  const std::int64_t sequences = config.batch.sequences;
  const std::int64_t micro = config.batch.micro_sequences;
  const std::int64_t micro_steps = sequences / (micro * ranks);
  const auto count = [](auto number) { return count_text(static_cast<double>(number)); };
  const double tokens = static_cast<double>(sequences) * static_cast<double>(shape.context);
  std::string text = fmt::format(
      "model: {} parameters; {} layers, {} heads, {} channels, context {}, vocabulary {}\n",
      count(parameters), shape.layers, shape.heads, shape.channels, shape.context,
      shape.vocabulary);
  text += fmt::format(
      "step:  {} sequences of {} tokens ({} tokens): {} {} x {} micro-{} of {} sequences\n",
      sequences, shape.context, count(tokens), ranks, ranks == 1 ? "rank" : "ranks", micro_steps,
      micro_steps == 1 ? "step" : "steps", micro);
  text += fmt::format("run:   {} steps, {} tokens, into {}\n", config.run.steps,
                      count(tokens * static_cast<double>(config.run.steps)), config.run.directory);
  return text;
}

}  // namespace trireme::job
