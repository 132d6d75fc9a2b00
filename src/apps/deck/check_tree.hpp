// SPDX-License-Identifier: Apache-2.0
// Cross-checks of parallel.reduction: tree and of keys that need its leaves.
#pragma once

#include "deck/check.hpp"
#include "deck/findings.hpp"

namespace trireme::deck {

void check_tree(const JobConfig& config, const Circumstances& circumstances, Findings& findings);

}  // namespace trireme::deck
