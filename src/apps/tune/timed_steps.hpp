// SPDX-License-Identifier: Apache-2.0
// Real steps of a deck on all ranks, timed: a fresh session each time, with random weights.
//
// A step of many micro-steps may be cut short. Then the micro-steps that are missing count as long
// as the second of those that were made, from its beginning to that of the third: the first waits
// for parameters, and the last may carry the reduction.
#pragma once

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
      std::numeric_limits<std::int64_t>::max();  ///< least_micro_steps or more
};

/// Seconds of a step with the deck's first batch: the median, of the slowest rank. Collective; the
/// same on every rank. Requires: OpenMP has the deck's threads.
double seconds_of_a_step(const session::Job& job,
                         const batches::Split& data,
                         comm::World& world,
                         const TimedSteps& request);

}  // namespace trireme::tune
