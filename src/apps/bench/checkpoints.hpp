// SPDX-License-Identifier: Apache-2.0
// What it takes to write a checkpoint on these ranks, by the writer of runs (record/checkpoint): its
// hashes, its HDF5 files, its manifest and every fsync included. Made-up state of three sizes gives
// a time for any checkpoint, for each tensor (a parameter in one state) and for each byte.
//
// 1. All ranks write at the same time, equal parts, as those of a run do, and beside threads that
//    compute, as beside a run's steps: where these leave no core free, a small checkpoint takes
//    twice as long as one that the run waits for. What takes longer than a step takes less than
//    that: ranks which nothing disturbs are done with it and leave their cores. So ranks wait for
//    each other as often as in a run.
// 2. From 8 to 192 MiB are written: what a file system takes longer for when its buffers are full
//    is not in the rate, and smaller checkpoints take less than is said.
#pragma once

#include <string>

#include "comm/control/world.hpp"

#include "record/checkpoint/checkpoint.hpp"

namespace trireme::bench {

struct CheckpointCost {
  double latency_s = 0;
  double tensor_s = 0;     ///< for each tensor
  double bytes_per_s = 0;  ///< of all ranks together
};

/// Of the run whose checkpoints they are.
struct CheckpointsOf {
  /// But for the step: some hundred values, which take milliseconds.
  record::CheckpointFacts facts;
  double step_s = 0;  ///< what a rank computes in a step
};

/// Medians over repetitions, on the threads that OpenMP has. Writes into a directory inside of
/// `directory`, and removes it. Collective; the same on every rank. Throws StorageError.
CheckpointCost measure_checkpoints(comm::World& world,
                                   const std::string& directory,
                                   const CheckpointsOf& run);

}  // namespace trireme::bench
