// SPDX-License-Identifier: Apache-2.0
// Checks what a deck needs on the machine where `trireme check` runs: files, directories, space,
// memory and time. Data files must exist but are not read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.hpp"

#include "deck/deck.hpp"
#include "plan/deck_plan.hpp"

namespace trireme::cli {

/// Looks for the files and directories of the keys that could be read. Appends errors, each once;
/// returns the free bytes where checkpoints are written, -1: unknown.
std::int64_t look_for_files(const deck::Deck& deck, std::vector<Diagnostic>& findings);

/// For a deck without mistakes and its plan: appends errors of a resume and of memory, and returns
/// lines about resources, with warnings.
std::string look_around(const deck::Deck& deck,
                        const plan::DeckPlan& plan,
                        std::int64_t free,
                        std::vector<Diagnostic>& findings);

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
