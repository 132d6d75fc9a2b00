// SPDX-License-Identifier: Apache-2.0
// The cross-checks of parallel.reduction: tree and of what works with its leaves only.
#pragma once

#include "deck/check.hpp"
#include "deck/findings.hpp"

namespace trireme::deck {

void check_tree(const JobConfig& config, const Circumstances& circumstances, Findings& findings);

}  // namespace trireme::deck
