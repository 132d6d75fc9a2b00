// SPDX-License-Identifier: Apache-2.0
// `trireme bench reduce DECK --fit FILE`: measures what a prediction of the deck's step needs
// (plan/machine.hpp) on the ranks that it is started with.
//
//   collectives  every operation at sizes up to the deck's largest bucket (bench/collectives.hpp), and the
//                two small exchanges of a step; with parallel.replicate inside of all copies at the
//                same time, and across them
//   compute      the deck's step on every rank by itself, all at the same time, with a bucket for
//                each parameter, the time when its gradient is complete
//   sharing      that step once more with collectives beside it: what each takes from the other
//
// 1. Ranks begin each repetition together, and the slowest one counts, as in training, where ranks
//    wait for each other in every step.
// 2. No step here waits for another rank: what compute and communication cost by themselves is
//    measured, and putting them together is left to the prediction.
// 3. CPUs only.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "base/log.hpp"

#include "comm/control/world.hpp"

#include "batches/dataset.hpp"

#include "session/job.hpp"

#include "bench/collectives.hpp"
#include "plan/machine.hpp"

namespace trireme::bench {

struct FitRequest {
  /// Repetitions; sizes where they are given, else up to the deck's largest bucket.
  CollectivesBenchRequest collectives;
  bool chooses_sizes = true;
  int steps = 15;
  /// Of a piece that takes steps: fewer of them, though three, when it has taken so long.
  double most_s = std::numeric_limits<double>::infinity();
  /// Beside the deck's.
  std::vector<comm::Transport> further_transports = {};
};

/// 1 KiB, 4 KiB, … and at last `largest` bytes.
std::vector<std::int64_t> fit_sizes(std::int64_t largest);

/// Without storage_bytes_per_s and processor. Collective; the same on every rank. Throws UserError
/// where a run of the deck would take GPUs, by `auto` too, or when a transport does not fit the world.
plan::Machine measure_machine(const session::Job& job,
                              comm::World& world,
                              Log& log,
                              const FitRequest& request);
/// The same of data that are open. Requires: OpenMP has the deck's threads.
plan::Machine measure_machine(const session::Job& job,
                              const batches::Split& data,
                              comm::World& world,
                              const FitRequest& request);

}  // namespace trireme::bench
