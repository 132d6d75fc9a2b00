// SPDX-License-Identifier: Apache-2.0
#include "train/race.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "base/quantile.hpp"

#include "timing/recorder.hpp"

namespace trireme::train {
namespace {

double timed(const std::function<void()>& run, device::Stream& stream, comm::World& world) {
  world.barrier();
  const double begin = timing::steady_seconds();
  run();
  stream.synchronize();
  const std::array mine{timing::steady_seconds() - begin};
  const auto all = world.gather_all(mine);
  return *std::ranges::max_element(all);
}

}  // namespace

std::vector<double> race(const std::vector<std::function<void()>>& entrants,
                         device::Stream& stream,
                         comm::World& world,
                         const RaceLimits& limits) {
  std::vector<std::vector<double>> seconds(entrants.size());
  double spent = 0;  // the same on all ranks, as every turn's time is
  for (int repetition = -1; repetition < limits.repetitions; ++repetition) {
    if (repetition > 1 && spent > limits.seconds)
      break;
    for (std::size_t i = 0; i < entrants.size(); ++i) {
      const double turn = timed(entrants[i], stream, world);
      spent += turn;
      if (repetition >= 0)
        seconds[i].push_back(turn);
    }
  }
  std::vector<double> medians;
  for (auto& turns : seconds) medians.push_back(median(std::move(turns)));
  return medians;
}

}  // namespace trireme::train
