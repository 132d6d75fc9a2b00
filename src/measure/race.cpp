// SPDX-License-Identifier: Apache-2.0
#include "measure/race.hpp"

#include <array>
#include <cstddef>
#include <utility>

#include "base/quantile.hpp"

#include "timing/recorder.hpp"

namespace trireme::measure {
namespace {

/// Runs in a turn. A kernel of a GPU takes less time than the host needs to start it and to learn
/// of its end, so there several go one after another, as they do in a step.
int runs_of(device::Stream& stream) {
  return stream.device().kind() == device::Kind::cpu ? 1 : 10;
}

double timed(const std::function<void()>& run, device::Stream& stream, comm::World& world) {
  const int runs = runs_of(stream);
  world.barrier();
  const double begin = timing::steady_seconds();
  for (int i = 0; i < runs; ++i) run();
  stream.synchronize();
  const std::array mine{(timing::steady_seconds() - begin) / runs};
  return comm::largest_of_ranks(world, mine).front();
}

}  // namespace

std::vector<double> race(const std::vector<std::function<void()>>& entrants,
                         device::Stream& stream,
                         comm::World& world,
                         const RaceLimits& limits) {
  std::vector<std::vector<double>> seconds(entrants.size());
  double spent = 0;  // the same on all ranks, as every turn's time is
  for (int repetition = -limits.warmups; repetition < limits.repetitions; ++repetition) {
    if (repetition > 1 && spent > limits.seconds)
      break;
    for (std::size_t i = 0; i < entrants.size(); ++i) {
      const double turn = timed(entrants[i], stream, world);
      spent += turn * runs_of(stream);
      if (repetition >= 0)
        seconds[i].push_back(turn);
    }
  }
  std::vector<double> medians;
  medians.reserve(seconds.size());
  for (auto& turns : seconds) medians.push_back(median(std::move(turns)));
  return medians;
}

}  // namespace trireme::measure
