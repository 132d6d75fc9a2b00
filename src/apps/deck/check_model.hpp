// SPDX-License-Identifier: Apache-2.0
// Cross-checks of the section `model`: whether its parts are compatible and there are kernels for
// them.
#pragma once

#include "deck/deck.hpp"
#include "deck/findings.hpp"

namespace trireme::deck {

/// `shape` is that of `config.model`. The caller reports missing sizes.
void check_model(const JobConfig& config,
                 const trireme::model::GptShape& shape,
                 const KeyPlaces& places,
                 Findings& findings);

}  // namespace trireme::deck
