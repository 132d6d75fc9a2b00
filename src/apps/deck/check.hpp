// SPDX-License-Identifier: Apache-2.0
// Cross-checks: rules between keys of a deck. Each rule names the keys it uses. It is skipped if
// one of them could not be read, and its findings are reported at each of the keys that was given,
// so that both sides of a conflict have a line.
#pragma once

#include <vector>

#include "base/error.hpp"

#include "deck/deck.hpp"

namespace trireme::deck {

/// Appends findings about keys that are valid individually but not together.
void check(const Deck& deck, const Circumstances& circumstances, std::vector<Diagnostic>& findings);

/// The part of check() for `checkpoint` and `record`.
void check_record(const Deck& deck, std::vector<Diagnostic>& findings);

/// The part of check() for run.initial_weights: reads the headers of the files and compares them
/// with the deck's model. Reads nothing if the run directory contains a checkpoint from which the
/// run would continue.
void check_weights(const Deck& deck,
                   const Circumstances& circumstances,
                   std::vector<Diagnostic>& findings);

/// "FILE:3:14: text", for a finding about a file other than the deck.
std::string elsewhere(const Diagnostic& finding);

}  // namespace trireme::deck
