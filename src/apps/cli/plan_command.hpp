// SPDX-License-Identifier: Apache-2.0
// `trireme plan`: shows buckets, memory and predicted times of a deck on a number of ranks, as text
// or JSON. Needs neither MPI nor a device.
#pragma once

#include <string>
#include <vector>

#include "deck/deck.hpp"

namespace trireme::cli {

struct PlanOutput {
  std::string json_path;                ///< new file for plan_json(); empty: none
  bool schedule = false;                ///< also print schedule_text()
  std::string machine_path = {};        ///< machine file for scaling_text(); empty: none
  std::vector<int> scaling_ranks = {};  ///< for scaling_text(); the first is the plan's
};

/// Reads and checks the deck, plans and predicts. A batch that cannot be split over the ranks is
/// only noted. Throws UserError, also if the JSON file exists, and StorageError.
std::string plan_command(const std::string& deck_path,
                         const std::vector<std::string>& overrides,
                         const deck::Circumstances& circumstances,
                         const PlanOutput& output);

}  // namespace trireme::cli
