// SPDX-License-Identifier: Apache-2.0
// `trireme bench reduce DECK --fit FILE`: measures this machine for predictions of the deck's step
// (plan/machine.hpp), on the ranks with which it is started.
//
//   collectives  every operation at sizes up to the deck's largest bucket (bench/collectives.hpp),
//                and the two small exchanges of a step; with parallel.replicate inside all replicas
//                at the same time, and between them
//   compute      the deck's step on every rank independently at the same time, with a bucket for
//                each parameter and the time when its gradient is complete
//   sharing      the same step together with collectives: how each slows down the other
//
// 1. Ranks begin each repetition together and the slowest one counts, as in a step of training.
// 2. No step waits for another rank: only the prediction combines compute and communication.
// 3. CPUs only.
#pragma once

#include "base/log.hpp"

#include "comm/control/world.hpp"

#include "session/job.hpp"

#include "bench/collectives.hpp"
#include "plan/machine.hpp"

namespace trireme::bench {

struct FitRequest {
  CollectivesBenchRequest collectives;  ///< repetitions; and sizes, unless chooses_sizes is set
  bool chooses_sizes = true;
  int steps = 15;
};

/// Everything except storage_bytes_per_s and processor. Collective; the same on every rank. Throws
/// UserError if a run of the deck would use GPUs, or if a transport cannot be used.
plan::Machine measure_machine(const session::Job& job,
                              comm::World& world,
                              Log& log,
                              const FitRequest& request);

}  // namespace trireme::bench
