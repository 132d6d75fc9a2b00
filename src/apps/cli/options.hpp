// SPDX-License-Identifier: Apache-2.0
// Options shared by several verbs, and their checks.
#pragma once

#include <algorithm>
#include <iterator>
#include <string>
#include <type_traits>
#include <vector>

#include <CLI/CLI.hpp>

#include "inference/loaded_model.hpp"

#include "deck/deck.hpp"

namespace trireme::cli {

struct DeckArguments {
  std::string path;
  std::vector<std::string> overrides;
};

/// Returns the option DECK, so that the caller can make it required.
CLI::Option* add_deck(CLI::App& command, DeckArguments& deck);
/// Adds MODEL, which is required, and --step.
void add_model(CLI::App& command, inference::ModelSource& source);
/// Check for --step and --seed: "" for a whole number that a deck key accepts, else the error.
std::string whole_number(const std::string& word);
/// Check for numbers: "", or an error for NaN.
std::string is_number(const std::string& word);
/// Adds --text and --field, text files and the key of JSON lines.
CLI::Option* add_text(CLI::App& command, std::vector<std::string>& files);
CLI::Option* add_field(CLI::App& command, std::string& field);
void add_ranks(CLI::App& command, int& ranks);
void add_json(CLI::App& command,
              std::string& path,
              const std::string& help =
                  "Also write the result as JSON to this file, which must not exist. With -, print "
                  "JSON instead of text.");

/// Circumstances for checking a deck without MPI.
deck::Circumstances circumstances_of(int ranks, int hosts = 1);
/// Reads and checks a deck without MPI.
deck::Deck deck_of(const DeckArguments& arguments, const deck::Circumstances& circumstances);

/// An option for the words of `table`, pairs of values and words, that passes the values to `take`.
template <class Table, class Take>
CLI::Option* add_choice(
    CLI::App& command, const char* option, const char* help, const Table& table, Take take) {
  std::vector<std::string> known;
  std::ranges::transform(table, std::back_inserter(known),
                         [](const auto& row) { return row.second; });
  const auto translate = [&table, take](const std::vector<std::string>& words) {
    std::vector<std::remove_cvref_t<decltype(table[0].first)>> chosen;
    for (const std::string& given : words)
      for (const auto& [value, word] : table)
        if (given == word)
          chosen.push_back(value);
    take(chosen);
  };
  return command.add_option_function<std::vector<std::string>>(option, translate, help)
      ->check(CLI::IsMember(known));
}
/// The same for a single word, whose value is stored in `value`.
template <class Table, class Value>
CLI::Option* add_word(
    CLI::App& command, const char* option, const char* help, const Table& table, Value& value) {
  return add_choice(command, option, help, table,
                    [&value](const auto& chosen) { value = chosen.back(); })
      ->expected(1);
}

/// Throws UserError if the file exists. Call before work whose result would be lost. An empty path
/// means no file, "-" standard output.
void expect_new_file(const std::string& path);
/// Prints `text` and writes `json` to the new file `path`, if not empty; "-": prints only `json`.
void give_result(const std::string& text, const std::string& path, const std::string& json);

}  // namespace trireme::cli
