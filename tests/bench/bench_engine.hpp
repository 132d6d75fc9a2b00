// SPDX-License-Identifier: Apache-2.0
// `bench_steps engine DECK`: measures the overhead of the gradient engine on one rank, and its
// gain on several ranks.
//
// engine the deck's step as in a run: buckets, events, the search for gradients that are
//         not finite, shard tables, spans (if the deck records them), the exchange at the end.
// plain the minimum for the same results: one flat gradient, one loop of AdamW over the
//         parameters; with several ranks one all-reduce of the whole gradient after backward, and
//         every rank updates everything. The same model code, kernels, batches, clipping and
//         schedule, but never graphs: gpu.graphs=false compares like with like on a GPU.
//
// 1. Both train in one process and alternate step by step; a ratio compares two consecutive steps.
// 2. Both must have bitwise the same loss after every step, else the comparison is invalid:
//    ContractError. So several ranks need fp32 sums whose order does not depend on buckets.
// 3. Ranks begin a step together, and the engine's step ends when its parameters are gathered:
//    transfers that overlap_parameters would overlap with the next forward are counted.
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

/// Collective; times are this rank's. Throws UserError for an unsuitable deck or machine: several
/// ranks must be on one host and add in fp32 in a fixed order (shared memory, or
/// parallel.reduction: ordered).
EngineBench bench_engine(const session::Job& job, comm::World& world, Log& log, int steps);

std::string engine_table(const EngineBench& result);

}  // namespace trireme::bench
