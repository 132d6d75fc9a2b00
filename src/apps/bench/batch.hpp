// SPDX-License-Identifier: Apache-2.0
// The time of what is shorter than a reading of the clock: it runs so often between two readings
// that their own cost vanishes.
#pragma once

#include <chrono>

namespace trireme::bench {

/// Seconds per run, of `batch` runs one after the other.
template <class Run>
double seconds_per_run(int batch, Run&& run) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  for (int i = 0; i < batch; ++i) run();
  return std::chrono::duration<double>(Clock::now() - start).count() / batch;
}

/// Runs that take 0.1 ms together, at most 65536. Warms up as well.
template <class Run>
int choose_batch(Run&& run) {
  constexpr double long_enough = 100e-6;
  constexpr int most = 1 << 16;
  int batch = 1;
  while (batch < most && seconds_per_run(batch, run) * batch < long_enough) batch *= 2;
  return batch;
}

}  // namespace trireme::bench
