// SPDX-License-Identifier: Apache-2.0
#include "cli/options.hpp"

#include <charconv>
#include <cstdint>
#include <limits>
#include <system_error>

#include <fmt/format.h>

#include "base/build_info.hpp"

namespace trireme::cli {

CLI::Option* add_deck(CLI::App& command, DeckArguments& deck) {
  CLI::Option* option = command.add_option("DECK", deck.path, "YAML file");
  command.add_option("OVERRIDES", deck.overrides, "section.key=value, as on a run");
  return option;
}

void add_model(CLI::App& command, inference::ModelSource& source) {
  command
      .add_option("MODEL", source.path,
                  "A run directory, a checkpoint, a folder of Hugging Face's transformers, or a "
                  "model file of llm.c")
      ->required();
  command.add_option("--step", source.step, "The checkpoint of this step, not the newest")
      ->check(whole_number);
}

std::string whole_number(const std::string& word) {
  std::int64_t number = -1;
  const char* const end = word.data() + word.size();
  const auto [stop, problem] = std::from_chars(word.data(), end, number);
  return problem == std::errc() && stop == end && number >= 0
             ? ""
             : fmt::format("'{}' is not a whole number from 0 to {}", word,
                           std::numeric_limits<std::int64_t>::max());
}

void add_ranks(CLI::App& command, int& ranks) {
  command.add_option("--ranks", ranks, "Ranks that the run will have")
      ->check(CLI::Range(1, 1 << 20));
}

void add_json(CLI::App& command, std::string& path) {
  command.add_option(
      "--json", path,
      "Also write the result to this new file as JSON; - prints the JSON instead of the text");
}

deck::Circumstances circumstances_of(int ranks, int hosts) {
  return {.ranks = ranks, .cuda = build_info().has_cuda, .hosts = hosts};
}

}  // namespace trireme::cli
