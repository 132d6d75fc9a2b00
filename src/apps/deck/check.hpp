// SPDX-License-Identifier: Apache-2.0
// The one place for rules between keys of different sections. Each rule names the keys it uses: it
// is skipped while one of them is unreadable, and its findings are reported at each of them that
// was given, so that both sides of a disagreement have their line.
#pragma once

#include <vector>

#include "base/error.hpp"

#include "deck/deck.hpp"

namespace trireme::deck {

/// Appends what the keys of a deck, each good in itself, get wrong together.
void check(const Deck& deck, const Circumstances& circumstances, std::vector<Diagnostic>& findings);

/// The part of it about `checkpoint` and `record`.
void check_record(const Deck& deck, std::vector<Diagnostic>& findings);

/// Appends what is wrong with run.initial_weights, or does not fit the model that the deck
/// describes. Reads the headers of their files; nothing where a checkpoint lies in the run's
/// directory, which the run would go on from.
void check_weights(const Deck& deck,
                   const Circumstances& circumstances,
                   std::vector<Diagnostic>& findings);

/// "FILE:3:14: text", for a finding that is about another file than the deck.
std::string elsewhere(const Diagnostic& finding);

}  // namespace trireme::deck
