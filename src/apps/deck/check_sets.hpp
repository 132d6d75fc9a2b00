// SPDX-License-Identifier: Apache-2.0
// Cross-checks of evaluate.sets.
#pragma once

#include "session/config.hpp"

#include "deck/deck.hpp"
#include "deck/findings.hpp"

namespace trireme::deck {

/// Adds a finding for each set whose name is not unique or cannot name a group of run.h5, and for
/// each set without exactly one source.
void check_evaluation_sets(const session::EvaluateConfig& config,
                           const KeyPlaces& places,
                           Findings& findings);

}  // namespace trireme::deck
