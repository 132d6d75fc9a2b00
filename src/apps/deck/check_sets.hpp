// SPDX-License-Identifier: Apache-2.0
// The cross-checks of evaluate.sets.
#pragma once

#include "session/config.hpp"

#include "deck/deck.hpp"
#include "deck/findings.hpp"

namespace trireme::deck {

/// Adds a finding for each set without a name of its own that can name a group of run.h5, and for
/// each that is not of exactly one thing.
void check_evaluation_sets(const session::EvaluateConfig& config,
                           const Places& places,
                           Findings& findings);

}  // namespace trireme::deck
