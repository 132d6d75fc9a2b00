// SPDX-License-Identifier: Apache-2.0
// The one place where keys of different sections meet. Each rule names the keys that it weighs: it
// is skipped while one of them is unreadable, and what it finds is said at every one of them that
// was given, so that both sides of a disagreement have their line.
#pragma once

#include <vector>

#include "base/error.hpp"

#include "job/deck.hpp"

namespace trireme::job {

/// Appends what the keys of a deck, each good in itself, get wrong together.
void check(const Deck& deck, const Circumstances& circumstances, std::vector<Diagnostic>& findings);

}  // namespace trireme::job
