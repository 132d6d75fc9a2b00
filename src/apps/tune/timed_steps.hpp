// SPDX-License-Identifier: Apache-2.0
// Times real steps of a deck on all ranks, with a new session and random weights each time.
//
// A step of many micro-steps may be shortened. Each omitted micro-step is then counted with the
// time of the second one, from its beginning to that of the third, because the first waits for
// parameters and the last may include the reduction.
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
      std::numeric_limits<std::int64_t>::max();  ///< at least least_micro_steps
};

/// Seconds of a step with the deck's first batch: the maximum over ranks of the medians.
/// Collective; the same on every rank. Requires: OpenMP uses the deck's number of threads.
double seconds_of_a_step(const session::Job& job,
                         const batches::Split& data,
                         comm::World& world,
                         const TimedSteps& request);

}  // namespace trireme::tune
