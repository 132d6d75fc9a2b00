// SPDX-License-Identifier: Apache-2.0
// How many steps, in how many rounds, of how many settings fit into the time for a part of tune.
// Pure arithmetic.
//
// Short steps are repeated: all settings in all rounds, several steps after each other. Of long
// steps, seconds each, one is taken, of three micro-steps, after one that warms up; and where even
// these take too long, fewer settings are run, and fewer rounds. The least that still decides
// something is never undercut: then it takes longer.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tune/timed_steps.hpp"

namespace trireme::tune {

/// With the deck's own values, as predicted.
struct OwnStep {
  double seconds = 0;
  std::int64_t micro_steps = 1;
};

struct Effort {
  TimedSteps timed;  ///< of every setting, each time that it is run
  int rounds = 1;
  /// Of each round: settings, or pairs of the one setting and the deck's own.
  std::size_t blocks = 1;
};

/// The deck's own values beside others, `settings` of them together: in four rounds, at least three
/// settings.
Effort effort_of_runs(double seconds, const OwnStep& own, std::size_t settings);

/// A setting beside the deck's own, once more: in eight rounds of two pairs, at least in four of
/// one, of which all have to be better (confirms()): of a setting that gains nothing, 1 of 16
/// series is like that, of eight rounds with at most one that is worse 9 of 256.
Effort effort_of_repetition(double seconds, const OwnStep& own);

}  // namespace trireme::tune
