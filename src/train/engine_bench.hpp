// SPDX-License-Identifier: Apache-2.0
// `trireme bench engine DECK`: what the gradient engine costs where it has nothing to do, at one
// rank.
//
// engine  the deck's step, as a run takes it: buckets, events, the search for gradients that are
//         not finite, shard tables, spans (where the deck records them), the exchange at the end.
// plain   the least that gives the same numbers: one flat gradient, one loop of AdamW over the
//         parameters. The same model code, kernels, batches, clipping and schedule, but never
//         graphs: run.graphs=false compares like with like on a GPU.
//
// 1. Both train side by side in one process, step by step, each first in turn; a ratio compares two
// steps that followed one another.
// 2. Both must have the same loss to the bit after every step, else they did not do the same work:
// ContractError.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/log.hpp"

#include "comm/world.hpp"

#include "train/job.hpp"

namespace trireme::train {

struct EngineBench {
  std::int64_t parameters = 0;
  std::size_t buckets = 0;
  int steps = 0;
  double engine_s = 0, plain_s = 0;      ///< per step, medians
  double ratio = 0;                      ///< engine to plain, median over pairs of steps
  double ratio_low = 0, ratio_high = 0;  ///< its quartiles
};

/// Requires: a world of one rank. Throws UserError when the deck's data or machine do not suit.
EngineBench bench_engine(const Job& job, comm::World& world, Log& log, int steps);

std::string engine_table(const EngineBench& result);
/// {"rows": [{"operation": "engine" | "plain", "parameters": …, "buckets": …, "seconds": …}, …],
/// "ratio": …}
std::string engine_json(const EngineBench& result);

}  // namespace trireme::train
