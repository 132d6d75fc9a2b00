// SPDX-License-Identifier: Apache-2.0
// `trireme bench engine DECK`: what the gradient engine costs where it has nothing to do, at one
// rank, and what it buys under mpirun.
//
// engine  the deck's step, as a run takes it: buckets, events, the search for gradients that are
//         not finite, shard tables, spans (where the deck records them), the exchange at the end.
// plain   the least that gives the same numbers: one flat gradient, one loop of AdamW over the
//         parameters; with several ranks one all-reduce of the whole gradient after backward, and
//         every rank updates everything. The same model code, kernels, batches, clipping and
//         schedule, but never graphs: gpu.graphs=false compares like with like on a GPU.
//
// 1. Both train side by side in one process, step by step, each first in turn; a ratio compares two
//    steps that followed one another.
// 2. Both must have the same loss to the bit after every step, else they did other work:
//    ContractError. So several ranks need fp32 sums in an order that is not that of buckets.
// 3. With several ranks all begin a step together, and the engine's step ends when its parameters
//    are gathered: what overlap_parameters would overlap with the next forward is counted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/log.hpp"

#include "comm/control/world.hpp"

#include "session/job.hpp"

namespace trireme::bench {

struct EngineBench {
  std::int64_t parameters = 0;
  std::size_t buckets = 0;
  int steps = 0;
  int ranks = 1;
  double engine_s = 0, plain_s = 0;      ///< per step, medians
  double ratio = 0;                      ///< engine to plain, median over pairs of steps
  double ratio_low = 0, ratio_high = 0;  ///< its quartiles
};

/// Collective; times are this rank's. Throws UserError when the deck's data or machine do not suit:
/// several ranks must be on one host and add in an order of their own (shared memory, or
/// parallel.reduction: ordered) in fp32.
EngineBench bench_engine(const session::Job& job, comm::World& world, Log& log, int steps);

std::string engine_table(const EngineBench& result);
/// {"rows": [{"operation": "engine" | "plain", "parameters": …, "buckets": …, "seconds": …}, …],
/// "ratio": …}
std::string engine_json(const EngineBench& result);

}  // namespace trireme::bench
