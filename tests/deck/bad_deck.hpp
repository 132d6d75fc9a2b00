// SPDX-License-Identifier: Apache-2.0
// The cases of bad_decks.txt, whose head explains the format.
#pragma once

#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/error.hpp"

#include "deck/deck.hpp"

namespace trireme::deck {

struct BadDeck {
  std::string name;
  std::string deck;
  std::vector<std::string> overrides;
  int ranks = 1;
  bool bare = false;
  std::vector<std::string> expected;
};

inline std::vector<BadDeck> load_bad_decks(const std::string& path) {
  std::ifstream file(path);
  if (!file)
    throw std::runtime_error("cannot open " + path);
  std::vector<BadDeck> cases;
  bool in_deck = false;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("=== ")) {
      cases.emplace_back().name = line.substr(4);
      in_deck = true;
    } else if (cases.empty()) {
      continue;
    } else if (in_deck && line.starts_with("! ranks ")) {
      cases.back().ranks = std::stoi(line.substr(8));
    } else if (in_deck && line.starts_with("! override ")) {
      cases.back().overrides.push_back(line.substr(11));
    } else if (in_deck && line == "! bare") {
      cases.back().bare = true;
    } else if (line == ">>>") {
      in_deck = false;
    } else if (in_deck) {
      cases.back().deck += line + "\n";
    } else if (!line.empty()) {
      cases.back().expected.push_back(line);
    }
  }
  return cases;
}

/// Adds the sections that the deck needs to be valid; existing lines keep their numbers.
inline std::string completed(const std::string& part) {
  std::string deck = part;
  const auto add = [&](const std::string& section, const std::string& line) {
    if (("\n" + part).find("\n" + section + ":") == std::string::npos)
      deck += line + "\n";
  };
  add("run", "run: {directory: r, steps: 10}");
  add("model", "model: {layers: 1, heads: 1, channels: 8, context: 4}");
  add("data", "data: {train: {synthetic: 1000}}");
  add("batch", "batch: {sequences: 4, micro_sequences: 1}");
  return deck;
}

/// What trireme prints for a deck; empty if it is valid.
inline std::vector<std::string> findings_of(const std::string& deck,
                                            const std::vector<std::string>& overrides,
                                            int ranks) {
  std::vector<std::string> lines;
  try {
    parse(deck, "deck.yaml", overrides, Circumstances{.ranks = ranks, .cuda = false});
  } catch (const UserError& error) {
    for (const Diagnostic& finding : error.findings()) lines.push_back(to_string(finding));
  }
  return lines;
}

}  // namespace trireme::deck
