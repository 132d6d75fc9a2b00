// SPDX-License-Identifier: Apache-2.0
// Checks what a deck needs on the machine where `trireme check` runs: files, directories, space,
// memory and time. Data files must exist but are not read.
#pragma once

#include <string>
#include <vector>

#include "base/error.hpp"

#include "deck/deck.hpp"
#include "plan/deck_plan.hpp"

namespace trireme::cli {

struct Surroundings {
  std::vector<Diagnostic> findings;  ///< errors, each once
  std::string notes;                 ///< lines about resources, with warnings
};

/// `plan` is that of the deck.
Surroundings look_around(const deck::Deck& deck, const plan::DeckPlan& plan);

/// One line: what cannot be checked before the run.
std::string not_checked(const deck::Deck& deck);

/// A line per precision that compares the memory of this host with the need of `ranks` ranks on it.
/// `findings` receives the reasons if none fits into what was set for this job: a control group or
/// a ulimit. The run may be meant for another host.
std::string memory_note(const deck::Deck& deck,
                        const plan::DeckPlan& plan,
                        int ranks,
                        std::vector<Diagnostic>* findings = nullptr);

}  // namespace trireme::cli
