// SPDX-License-Identifier: Apache-2.0
#include "bench/race.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include <mpi.h>

#include "base/quantile.hpp"
#include "device/recorder.hpp"

#include "comm/control/mpi_check.hpp"
#include "comm/control/mpi_world.hpp"

namespace trireme::bench {
namespace {

double timed(const std::function<void()>& run,
             int runs,
             device::Stream& stream,
             comm::World& world,
             bool exactly = false) {
  world.barrier();
  if (auto* mpi = dynamic_cast<comm::MpiWorld*>(&world); mpi != nullptr && exactly)
    TRIREME_MPI(MPI_Barrier(mpi->comm()));
  const double begin = device::steady_seconds();
  for (int i = 0; i < runs; ++i) run();
  stream.synchronize();
  const std::array mine{(device::steady_seconds() - begin) / runs};
  return comm::largest_of_ranks(world, mine).front();
}

/// A function and its times, which are the same on all ranks.
struct Entrant {
  const std::function<void()>& run;
  int runs = 1;  ///< per repetition
  std::vector<double> seconds{};
};

/// Launch and synchronization are about 1 % of a run of this duration.
constexpr double long_run_seconds = 10e-3;
constexpr int short_runs = 10;

}  // namespace

std::vector<double> race(const std::vector<std::function<void()>>& entrants,
                         device::Stream& stream,
                         comm::World& world,
                         const RaceLimits& limits) {
  double spent = 0;
  std::vector<Entrant> all;
  all.reserve(entrants.size());
  for (const std::function<void()>& run : entrants) {
    Entrant& entrant = all.emplace_back(Entrant{run, std::max(1, limits.in_a_row)});
    if (limits.in_a_row > 0 || stream.device().kind() == device::Kind::cpu)
      continue;
    spent += timed(run, 1, stream, world);  // libraries choose and load their kernels
    const double seconds = timed(run, 1, stream, world);
    spent += seconds;
    entrant.runs = seconds < long_run_seconds ? short_runs : 1;
  }
  for (int repetition = -limits.warmups; repetition < limits.repetitions; ++repetition) {
    const bool late = spent > limits.seconds;
    if (late && repetition > 1)
      break;
    if (late && repetition < 0)
      continue;
    for (Entrant& entrant : all) {
      const double seconds = timed(entrant.run, entrant.runs, stream, world, limits.starts_exactly);
      spent += seconds * entrant.runs;
      if (repetition >= 0)
        entrant.seconds.push_back(seconds);
    }
  }
  std::vector<double> medians;
  medians.reserve(all.size());
  for (Entrant& entrant : all) medians.push_back(median(std::move(entrant.seconds)));
  return medians;
}

}  // namespace trireme::bench
