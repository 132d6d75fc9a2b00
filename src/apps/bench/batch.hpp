// SPDX-License-Identifier: Apache-2.0
// Times operations that are shorter than reading the clock, by running many of them between two
// readings.
#pragma once

#include <chrono>

namespace trireme::bench {

/// Seconds per run, from `batch` consecutive runs.
template <class Run>
double seconds_per_run(int batch, Run&& run) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  for (int i = 0; i < batch; ++i) run();
  return std::chrono::duration<double>(Clock::now() - start).count() / batch;
}

/// The number of runs that take 0.1 ms together, at most 65536. Also warms up.
template <class Run>
int choose_batch(Run&& run) {
  constexpr double long_enough = 100e-6;
  constexpr int most = 1 << 16;
  int batch = 1;
  while (batch < most && seconds_per_run(batch, run) * batch < long_enough) batch *= 2;
  return batch;
}

}  // namespace trireme::bench
