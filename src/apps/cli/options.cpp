// SPDX-License-Identifier: Apache-2.0
#include "cli/options.hpp"

#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <system_error>

#include <fmt/format.h>

#include "base/build_info.hpp"
#include "base/line_output.hpp"
#include "files/output_file.hpp"

#include "cli/verb.hpp"

namespace trireme::cli {

CLI::Option* add_deck(CLI::App& command, DeckArguments& deck) {
  CLI::Option* option = command.add_option("DECK", deck.path, "Deck, a YAML file.");
  command.add_option("OVERRIDES", deck.overrides, "Overrides of deck keys, as section.key=value.");
  return option;
}

void add_model(CLI::App& command, inference::ModelSource& source) {
  command
      .add_option("MODEL", source.path,
                  "A run directory, a checkpoint, a folder of Hugging Face transformers, or a "
                  "model file of llm.c.")
      ->required();
  command.add_option("--step", source.step, "Step of the checkpoint. Default: the newest.")
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

std::string is_number(const std::string& word) {
  return std::isnan(std::strtod(word.c_str(), nullptr)) ? "not a number" : "";
}

CLI::Option* add_text(CLI::App& command, std::vector<std::string>& files) {
  return command.add_option(
      "--text", files,
      "Text files, directories and globs; also compressed with gzip, zstd, bzip2 or xz.");
}

CLI::Option* add_field(CLI::App& command, std::string& field) {
  return command.add_option("--field", field,
                            "The text is JSON lines with one document per line, under this key.");
}

void add_ranks(CLI::App& command, int& ranks) {
  command.add_option("--ranks", ranks, "Number of ranks of the run. Default: 1.")
      ->check(CLI::Range(1, 1 << 20));
}

void add_json(CLI::App& command, std::string& path, const std::string& help) {
  command.add_option("--json", path, help)->each([](const std::string& given) {
    if (given == "-")
      log_to_standard_error();
  });
}

deck::Circumstances circumstances_of(int ranks, int hosts) {
  return {.ranks = ranks, .cuda = build_info().has_cuda, .hosts = hosts};
}

deck::Deck deck_of(const DeckArguments& arguments, const deck::Circumstances& circumstances) {
  return deck::parse(deck::read_deck_file(arguments.path), arguments.path, arguments.overrides,
                     circumstances);
}

void expect_new_file(const std::string& path) {
  if (!path.empty() && path != "-")
    files::expect_new_file(path);
}

void give_result(const std::string& text, const std::string& path, const std::string& json) {
  print(path == "-" ? json : text);
  if (!path.empty() && path != "-")
    files::write_new_file(path, json);
}

}  // namespace trireme::cli
