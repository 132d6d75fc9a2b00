// SPDX-License-Identifier: Apache-2.0
// Options that several verbs share, and their checks.
#pragma once

#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "inference/loaded_model.hpp"

#include "deck/deck.hpp"

namespace trireme::cli {

/// The arguments of a command line that name a deck: its file and the overrides of its keys.
struct DeckArguments {
  std::string path;
  std::vector<std::string> overrides;
};

/// Returns DECK, which the caller may require.
CLI::Option* add_deck(CLI::App& command, DeckArguments& deck);
/// MODEL, which is required, and --step.
void add_model(CLI::App& command, inference::ModelSource& source);
/// A check of --step and --seed: "" for what a deck's key of whole numbers takes, else what is wrong.
std::string whole_number(const std::string& word);
void add_ranks(CLI::App& command, int& ranks);
void add_json(CLI::App& command, std::string& path);

/// What a deck is checked for where there is no MPI to ask for the number of ranks.
deck::Circumstances circumstances_of(int ranks, int hosts = 1);

/// An option that takes words of `table`, which pairs values and their words, and hands over the
/// values.
template <class Table, class Take>
CLI::Option* add_choice(
    CLI::App& command, const char* option, const char* help, const Table& table, Take take) {
  std::vector<std::string> known;
  for (const auto& [value, word] : table) known.emplace_back(word);
  const auto translate = [&table, take](const std::vector<std::string>& words) {
    std::vector<std::remove_cvref_t<decltype(table[0].first)>> chosen;
    for (const std::string& asked : words)
      for (const auto& [value, word] : table)
        if (asked == word)
          chosen.push_back(value);
    take(chosen);
  };
  return command.add_option_function<std::vector<std::string>>(option, translate, help)
      ->check(CLI::IsMember(known));
}

}  // namespace trireme::cli
