// SPDX-License-Identifier: Apache-2.0
// Divides the time for a part of tune into settings, rounds and steps, and times them.
//
// Short steps are repeated: all settings in all rounds, with several steps each. For long steps, a
// single step of three micro-steps is timed after one for warm-up. If that still takes too long,
// fewer rounds are run, down to half of them, which may exceed the time.
//
// Steps are real ones on all ranks, each with a new session and random weights. A step of many
// micro-steps may be shortened. Each omitted micro-step is then counted with the time of the second
// one, from its beginning to that of the third, because the first waits for parameters and the last
// may include the reduction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "comm/control/world.hpp"

#include "batches/dataset.hpp"

#include "session/job.hpp"

namespace trireme::tune {

inline constexpr std::int64_t least_micro_steps = 3;

struct TimedSteps {
  int warmups = 2, steps = 5;
  std::int64_t most_micro_steps =
      std::numeric_limits<std::int64_t>::max();  ///< at least least_micro_steps
};

/// Seconds of a step with the deck's first batch: the maximum over ranks of the medians.
/// Collective; the same on every rank. Requires: OpenMP uses the deck's number of threads.
double seconds_of_a_step(const session::Job& job,
                         const batches::Split& data,
                         comm::World& world,
                         const TimedSteps& request);

/// For long steps: one shortened step after one for warm-up.
inline constexpr TimedSteps shortest_steps{
    .warmups = 1, .steps = 1, .most_micro_steps = least_micro_steps};

/// The step with the deck's own values.
struct OwnStep {
  double seconds = 0;
  std::int64_t micro_steps = 1;
};

struct TuneBudget {
  TimedSteps timed;  ///< of every setting in every round
  int rounds = 1;
};

/// The steps with which `sessions` sessions take about `seconds`: shortest_steps if not even one
/// whole step fits.
TimedSteps steps_within(double seconds, const OwnStep& own, std::size_t sessions);

/// The number of sessions with shortest_steps that fit.
std::size_t sessions_within(double seconds, const OwnStep& own);

/// For `rounds` rounds of `settings` settings, at least half of the rounds.
TuneBudget budget_of(double seconds, const OwnStep& own, std::size_t settings, int rounds);

}  // namespace trireme::tune
