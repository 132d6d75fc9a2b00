// SPDX-License-Identifier: Apache-2.0
// What `trireme tune` found, for people, for programs, and as comments of the deck that it writes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "deck/edit.hpp"
#include "tune/tune.hpp"

namespace trireme::tune {

/// A line for each setting that was run, and what is chosen and why.
std::string tuning_table(const Tuning& tuning);

/// {"filetype": "trireme-tune", "version": [1, 0], "runs": […], "repeated": …, "chosen": …}.
std::string tuning_json(const Tuning& tuning);

/// Where the deck came from, for its comments.
struct DeckOrigin {
  std::string build;                   ///< version and revision of this program
  std::vector<std::string> overrides;  ///< of the command line
};

/// Keys of `bytes`, a deck's text, that must change to train with the chosen setting.
std::vector<deck::KeyValue> values_to_write(const Tuning& tuning, const std::string& bytes);

/// The deck's text with these values after a block of comments: what was measured and chosen. One
/// that an earlier tuning wrote gives way. Nothing where its layout does not allow it.
std::optional<std::string> tuned_deck(const Tuning& tuning,
                                      const std::string& bytes,
                                      const DeckOrigin& origin);

}  // namespace trireme::tune
