// SPDX-License-Identifier: Apache-2.0
// Measures the time to write a checkpoint with the writer of runs (record/checkpoint), including
// hashes, HDF5 files, manifest and fsync. Artificial states of three sizes give a latency, a time
// per tensor (a parameter in one state), and a rate per byte.
//
// 1. All ranks write equal parts at the same time, while other threads compute as in the steps of a
//    run: if these leave no core free, a small checkpoint takes twice as long. Ranks synchronize as
//    often as in a run, because undisturbed ranks finish a step early and leave their cores idle.
// 2. 8 to 192 MiB are written. The rate does not include the slowdown of a file system with full
//    buffers, and the prediction is too high for smaller checkpoints.
#pragma once

#include <string>

#include "comm/control/world.hpp"

#include "record/checkpoint/checkpoint.hpp"

namespace trireme::bench {

struct CheckpointCost {
  double latency_s = 0;
  double tensor_s = 0;     ///< per tensor
  double bytes_per_s = 0;  ///< of all ranks together
};

/// The run whose checkpoints are simulated.
struct CheckpointsOf {
  /// Without the step: some hundred values, which take milliseconds.
  record::CheckpointFacts facts;
  double step_s = 0;  ///< compute time of a rank per step
};

/// Medians over repetitions, with OpenMP's number of threads. Writes into a new directory inside
/// `directory`, and removes it. Collective; the same on every rank. Throws StorageError.
CheckpointCost measure_checkpoints(comm::World& world,
                                   const std::string& directory,
                                   const CheckpointsOf& run);

}  // namespace trireme::bench
