// SPDX-License-Identifier: Apache-2.0
// `trireme verify DECK`: checks that no optimisation changes the results. Trains the deck's first
// steps with every combination of
//
//   buckets: one | several | one per parameter      padding: each of the four
//   shard: none | optimizer | gradients | parameters
//   overlap_gradients x overlap_parameters x cached_shards x pool, each off and on
//
// That is 693 on the CPU: shard: parameters has fewer paddings, but also reshard_after_forward and
// prefetch. If the ranks can be divided into groups of several, 69 more use replicas
// (parallel.replicate), as many as the smallest factor of the ranks: those with shards and with all
// switches off or all on. All use a reduction in a fixed order (`sum` becomes `ordered`). The first
// combination is the plain one: not sharded, with every switch off. The results of all others must
// be bitwise equal to it.
//
// With several micro-steps, shard: gradients and parameters reduce each micro-step and add up the
// sums; the others add up micro-steps first, which rounds differently. Then there is a second plain
// combination, with reduce_every: micro_step, to which those with these shards must be equal. If
// the deck's reduction or order of buckets excludes these shards, there are only the other 384.
// With gradients in blocks of codes there are 3 x 2^4 without shards, with padding aligned: shards
// round differently. With gradient_rank there are these with every padding.
//
// Per combination and rank:
//
// 1. Before training, gradients are powers of two, one per rank (ones above 8 ranks; as int8 and
//    fp8 only of the first 7 and 4): after the reduction each owned element must be the exact sum,
//    so each rank was added exactly once. Approximations (top4, top1, factors) are not looked at.
// 2. Memory that must not be read is NaN: scratch when it is leased, gradients and their padding
//    before a step clears them, and parameters of other ranks before their first gather.
// 3. After each step: loss, gradient norm and the owned state (masters, moments) equal the first
//    combination's, and padding of owned gradients and parameters is zero. The check does not wait
//    for gathers for which the step does not wait, so overlap is tested. In every other step,
//    overlapping collectives are delayed until compute waits for them, and the parameters that they
//    gather are NaN until then, so a missing wait is found even with a fast network.
// 4. After the last step and its gathers: all parameters on all ranks, and their padding.
// 5. With several ranks on one host and all switches on, the state after the last step is copied to
//    memory (session/memory_copies.hpp), written as a checkpoint without one of the ranks, and read
//    by the others: it must equal the first combination's.
//
// With gpu.graphs: true, micro-steps with a pool are captured in step 2 and then replayed.
//
// Only a token cache (in a temporary directory, or data.cache) and those checkpoints are written.
// Memory: each rank stores `steps` + 1 copies of all parameters.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/log.hpp"

#include "comm/control/world.hpp"
#include "reduce/config.hpp"

#include "session/job.hpp"
#include "session/session.hpp"

namespace trireme::bench {

using session::Job;
using session::Session;

struct Combination : reduce::ParallelConfig {
  std::string_view buckets = "one bucket";
  std::int64_t elements = 1;  ///< of a bucket, at most, if not by bucket_boundaries
  bool pool = false;

  [[nodiscard]] bool all_on() const {
    return overlap_gradients && overlap_parameters && cached_shards && pool &&
           padding == layout::Padding::aligned;
  }
  /// As overrides of the deck for the command line.
  [[nodiscard]] std::string text() const;
};

/// All combinations, grouped by buckets and padding. "several" buckets are the deck's own if it has
/// several, else four. `several`: some step has several micro-steps.
std::vector<Combination> all_combinations(const Job& job, bool several, int ranks);

struct VerifyRequest {
  std::int64_t steps = 3;
  /// For tests: called after each step, before the check.
  std::function<void(Session& session, const Combination& combination, std::int64_t step)> meddle;
};

struct Verified {
  int combinations = 0;    ///< number that were run
  std::string difference;  ///< empty, or the first one: combination, step, parameter, element
};

/// Collective; the same result on every rank. Prints a line for each layout of buckets. Throws
/// UserError when the deck's data or machine do not suit.
Verified verify(const Job& job, comm::World& world, Log& log, const VerifyRequest& request);

}  // namespace trireme::bench
