// SPDX-License-Identifier: Apache-2.0
// `trireme verify DECK`: the proof that no optimisation changes the numbers. The deck's first steps
// are trained once under every combination of
//
//   buckets: one | several | one per parameter      padding: each of the four
//   shard: none | optimizer | gradients | parameters
//   overlap_gradients x overlap_parameters x cached_shards x pool, each off and on
//
// which are 693, on the CPU: 3 x 4 x 3 x 2^4 = 576, and with shard: parameters 3 x 2^4 with padding
// aligned, as many again with reshard_after_forward: false, 3 x 3 with another padding and all
// switches on, and 3 x 2 x 2 with those on and another prefetch of 1 to 3 than the deck's. Where
// the ranks can be divided into groups of several, those with shards and all switches off or all on
// are run with copies as well (parallel.replicate), as many as the smallest factor of the ranks: 69
// more. They run with a reduction in a fixed order (`sum` becomes `ordered`). The first combination
// is the plainest one: not sharded, so every rank computes all of it, and with every switch off.
// What each of the others gives must equal it to the bit.
//
// Where a step has several micro-steps, shard: gradients and parameters reduce each of them and add
// up the sums, and everything else adds them up first, which rounds otherwise. Then there is one
// more plain combination, with reduce_every: micro_step, and those with these shards must equal it
// to the bit. With one micro-step they must equal the first. A deck whose reduction or order of
// buckets these do not go with has the other 384.
//
// Per combination and rank:
//
// 1. Before training, gradients are powers of two, one per rank (ones above 8 ranks): after
//    the reduction each owned element must be the exact sum, so each rank was added exactly once.
// 2. What must not be read is NaN: all scratch when it is leased, all gradients (padding too)
//    before a step clears them, and the parameters that other ranks own before their first gather.
// 3. After each step: loss, gradient norm and the owned state (masters, moments) equal the first
//    combination's, and padding of owned gradients and parameters is zero. Nothing waits for a
//    gather that the step itself does not wait for, so overlap is tested. In every other step,
//    collectives that overlap are delayed until compute waits for them, and the parameters that
//    they bring are NaN until then: so a missing wait is found, however fast the network is.
// 4. After the last step and its gathers: all parameters on all ranks, and their padding.
//
// With gpu.graphs: true the micro-steps of the combinations with a pool are captured in step 2 and
// replayed from then on.
//
// Nothing is written but a token cache in a temporary directory (or data.cache), gone at the end.
// Memory: each rank keeps `steps` + 1 copies of all parameters.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/log.hpp"
#include "layout/config.hpp"
#include "layout/residency.hpp"

#include "comm/control/world.hpp"

#include "session/job.hpp"
#include "session/session.hpp"

namespace trireme::bench {

using session::Job;
using session::Session;

struct Combination {
  const char* buckets = "one bucket";
  std::int64_t bucket_elements = 1;
  layout::Padding padding = layout::Padding::aligned;
  layout::Shard shard = layout::Shard::none;
  int replicas = 1;
  bool reshard_after_forward = true;
  std::int64_t prefetch = layout::GatherOptions{}.prefetch;
  reduce::ReduceEvery reduce_every = reduce::ReduceEvery::automatic;
  bool overlap_gradients = false;
  bool overlap_parameters = false;
  bool cached_shards = false;
  bool pool = false;
  bool keeps_boundaries = false;  ///< buckets that the deck chose by hand

  /// As overrides of the deck, ready to be typed.
  [[nodiscard]] std::string text() const;
};

/// All of them; those with equal buckets and padding are neighbours. `several` are the deck's own
/// buckets where these are several, else a quarter of the parameters each.
/// `several`: some step has several micro-steps. `ranks`: of the run.
std::vector<Combination> all_combinations(const Job& job, bool several, int ranks);

struct VerifyRequest {
  std::int64_t steps = 3;
  /// For tests: called after each step, before it is checked.
  std::function<void(Session& session, const Combination& combination, std::int64_t step)> meddle;
};

struct Verified {
  int combinations = 0;    ///< that were run
  std::string difference;  ///< empty, or the first one: combination, step, parameter, element
};

/// Collective; the same result on every rank. Prints a line for each layout of buckets. Throws
/// UserError when the deck's data or machine do not suit.
Verified verify(const Job& job, comm::World& world, Log& log, const VerifyRequest& request);

}  // namespace trireme::bench
