// SPDX-License-Identifier: Apache-2.0
// Times several functions for comparison. Their repetitions are interleaved, so that disturbances
// of the machine affect all of them, and the result is the median. All ranks run at the same time,
// and the slowest rank is counted. On a CPU a repetition is one run. On a GPU a kernel is shorter
// than its launch and synchronization, so a repetition is the mean of ten runs on the stream, or
// one run if it takes 10 ms or more; two runs beforehand decide.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/view.hpp"
#include "device/device.hpp"

#include "comm/control/world.hpp"

namespace trireme::bench {

struct RaceLimits {
  int repetitions = 7;
  int warmups = 1;       ///< repetitions before them that are not counted
  double seconds = 1e9;  ///< limit: after it, no warm-up begins, and no repetition after the second
  int in_a_row = 0;      ///< runs of a repetition; 0: as above
  /// All ranks leave a barrier of MPI, which spins, before each repetition: for what is shorter
  /// than waking from a sleep in World::barrier().
  bool starts_exactly = false;
};

/// Seconds per function, in their order; the same on all ranks. Collective.
std::vector<double> race(const std::vector<std::function<void()>>& entrants,
                         device::Stream& stream,
                         comm::World& world,
                         const RaceLimits& limits);

/// Sets every element of `to`, fp32 or bf16, to the value for its index. Waits for the stream.
void fill(View to, device::Stream& stream, const std::function<float(std::int64_t)>& value);

/// Fills an operand, fp32 or bf16, with fixed numbers in [-0.25, 0.25], because zeros, denormals and
/// overflowing sums would change the time. Waits for the stream.
void fill_small_numbers(View to, device::Stream& stream);

}  // namespace trireme::bench
