// SPDX-License-Identifier: Apache-2.0
// How the benches take time: entrants run in turns, repetition by repetition, so that a disturbance
// of the machine hits all of them; each gets the median of its turns. All ranks run at the same
// time, and a turn takes as long as its slowest rank. A turn is one run on a CPU. A kernel of a GPU
// takes less time than the host needs to start it and to learn of its end, so there a turn is ten
// runs that follow each other on the stream, as they do in a step, and takes their mean; one run
// where that lasts 10 ms or more. Which it is, two runs beforehand decide.
#pragma once

#include <functional>
#include <vector>

#include "device/device.hpp"

#include "comm/control/world.hpp"

namespace trireme::bench {

struct RaceLimits {
  int repetitions = 7;
  /// Repetitions before them, which do not count.
  int warmups = 1;
  /// No warm-up begins after so long, and no further repetition once there were two.
  double seconds = 1e9;
};

/// Seconds per entrant, in their order; the same on all ranks. Collective.
std::vector<double> race(const std::vector<std::function<void()>>& entrants,
                         device::Stream& stream,
                         comm::World& world,
                         const RaceLimits& limits);

}  // namespace trireme::bench
