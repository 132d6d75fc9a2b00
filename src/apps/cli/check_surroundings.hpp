// SPDX-License-Identifier: Apache-2.0
// What a deck needs of the machine on which `trireme check` runs: files, directories, space, memory
// and time. Data are looked for, but not read.
#pragma once

#include <string>
#include <vector>

#include "base/error.hpp"

#include "deck/deck.hpp"
#include "plan/deck_plan.hpp"

namespace trireme::cli {

struct Surroundings {
  std::vector<Diagnostic> findings;  ///< mistakes, each once
  std::string notes;                 ///< lines: what is there, and what may not be enough
};

/// `plan`: of the deck.
Surroundings look_around(const deck::Deck& deck, const plan::DeckPlan& plan);

/// One line: what no check can know before the run.
std::string not_checked(const deck::Deck& deck);

/// A line about the memory of this host and what `ranks` ranks on it would take.
std::string memory_note(const deck::Deck& deck, const plan::DeckPlan& plan, int ranks);

}  // namespace trireme::cli
