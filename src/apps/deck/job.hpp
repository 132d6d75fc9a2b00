// SPDX-License-Identifier: Apache-2.0
// From a checked deck to what a run is started with.
#pragma once

#include "session/job.hpp"

#include "deck/deck.hpp"

namespace trireme::deck {

/// All but Job::build, which says what the program is made of.
session::Job job_of(const Deck& deck);

}  // namespace trireme::deck
