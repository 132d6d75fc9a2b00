// SPDX-License-Identifier: Apache-2.0
// Whether the parts of a model fit together, and whether there are kernels for them.
#pragma once

#include "deck/deck.hpp"
#include "deck/findings.hpp"

namespace trireme::deck {

/// `shape` is that of `config.model`; sizes that are missing are the caller's to report.
void check_model(const JobConfig& config,
                 const trireme::model::GptShape& shape,
                 const Places& places,
                 Findings& findings);

}  // namespace trireme::deck
