// SPDX-License-Identifier: Apache-2.0
// Builds the session::Job of a run from a checked deck.
#pragma once

#include "session/job.hpp"

#include "deck/deck.hpp"

namespace trireme::deck {

/// Everything except Job::build, the versions of the program.
session::Job job_of(const Deck& deck);

}  // namespace trireme::deck
