// SPDX-License-Identifier: Apache-2.0
// `trireme plan`: what a deck gets on a number of ranks, printed or written as JSON. Runs anywhere,
// without MPI or a device.
#pragma once

#include <string>
#include <vector>

#include "deck/deck.hpp"

namespace trireme::cli {

struct PlanOutput {
  std::string json_path;                ///< of a new file for plan_json(); empty: none
  bool schedule = false;                ///< schedule_text() as well
  std::string machine_path = {};        ///< of a machine file for scaling_text(); empty: none
  std::vector<int> scaling_ranks = {};  ///< for it; the first is that of the plan
};

/// `trireme plan`: reads, checks all but the batch, plans and predicts; notes when the batch
/// cannot be split over the ranks. Throws UserError, also when that file exists, and StorageError.
std::string plan_command(const std::string& deck_path,
                         const std::vector<std::string>& overrides,
                         const deck::Circumstances& circumstances,
                         const PlanOutput& output);

}  // namespace trireme::cli
