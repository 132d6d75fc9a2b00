// SPDX-License-Identifier: Apache-2.0
// How often an entrant runs: a race must end on a device of any speed.
#include "bench/race.hpp"

#include <gtest/gtest.h>

#include "device/recorder.hpp"

#include "comm/control/world.hpp"

#include "support/gpu.hpp"

namespace trireme::bench {
namespace {

/// How often an entrant runs if one run takes the host this many seconds.
int runs_of(device::Device& device, double seconds, const RaceLimits& limits) {
  const auto world = comm::make_self_world();
  const auto stream = device.make_stream(device::StreamMode::inlined, "test");
  int runs = 0;
  const auto results = race({[&] {
                              const double end = device::steady_seconds() + seconds;
                              while (device::steady_seconds() < end) {
                              }
                              ++runs;
                            }},
                            *stream, *world, limits);
  EXPECT_EQ(results.size(), 1U);
  EXPECT_GE(results.front(), seconds);
  return runs;
}

TEST(Race, TakesOneRunPerTurnOnACpu) {
  const auto device = device::make_cpu_device(1);
  EXPECT_EQ(runs_of(*device, 0, {.repetitions = 3, .warmups = 2}), 2 + 3);
}

TEST(Race, TakesTwoRepetitionsAtLeastAndNoneLater) {
  const auto device = device::make_cpu_device(1);
  EXPECT_EQ(runs_of(*device, 2e-3, {.repetitions = 7, .warmups = 1, .seconds = 1e-3}), 1 + 2);
  EXPECT_EQ(runs_of(*device, 2e-3, {.repetitions = 1, .warmups = 1, .seconds = 1e-3}), 1 + 1);
}

TEST(Race, TakesTenRunsPerTurnOnAGpu) {
  TRIREME_NEEDS_GPU();
  const auto device = device::make_cuda_device(0);
  // If the system stops this process for 10 ms, a turn takes only one run, so try again.
  int runs = 0;
  for (int trial = 0; trial < 20 && runs != 2 + 10 + 3 * 10; ++trial)
    runs = runs_of(*device, 0, {.repetitions = 3, .warmups = 1});
  EXPECT_EQ(runs, 2 + 10 + 3 * 10);
}

TEST(Race, TakesOneOfAnEntrantThatIsSlowOnAGpu) {
  TRIREME_NEEDS_GPU();
  const auto device = device::make_cuda_device(0);
  EXPECT_EQ(runs_of(*device, 10e-3, {.repetitions = 3, .warmups = 1}), 2 + 1 + 3);
  EXPECT_EQ(runs_of(*device, 10e-3, {.repetitions = 3, .warmups = 1, .seconds = 1e-3}), 2 + 2);
}

}  // namespace
}  // namespace trireme::bench
