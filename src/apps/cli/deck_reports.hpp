// SPDX-License-Identifier: Apache-2.0
// What `trireme check` and `trireme plan` print. They need neither MPI nor a device, and throw
// UserError for mistakes in the deck.
#pragma once

#include <string>
#include <vector>

#include "cli/options.hpp"

namespace trireme::cli {

/// The value of the key `key` of the deck, with defaults and overrides, and a line end.
std::string value_of(const DeckArguments& arguments,
                     const std::string& key,
                     const deck::Circumstances& circumstances);

/// Reads and cross-checks a deck; returns a summary of the run in a few lines.
std::string check_command(const DeckArguments& arguments, const deck::Circumstances& circumstances);

struct PlanOutput {
  std::string json_path;                ///< new file for plan_json(); empty: none
  bool schedule = false;                ///< also print schedule_text()
  std::string machine_path = {};        ///< machine file for scaling_text(); empty: none
  std::vector<int> scaling_ranks = {};  ///< for scaling_text(); the first is the plan's
};

/// Buckets, memory and predicted times of a deck, as text or JSON. A batch that cannot be split over
/// the ranks is only noted. Throws UserError, also if the JSON file exists, and StorageError.
std::string plan_command(const DeckArguments& arguments,
                         deck::Circumstances circumstances,
                         const PlanOutput& output);

}  // namespace trireme::cli
