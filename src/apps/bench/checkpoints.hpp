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

#include "plan/machine.hpp"

namespace trireme::bench {

/// Sets the storage costs of `machine`: medians over repetitions, with OpenMP's number of threads.
/// Writes into a new directory inside `directory`, and removes it. `facts`: of the run, without the
/// step: some hundred values, which take milliseconds. `step_s`: compute time of a rank per step.
/// Collective; the same on every rank. Throws StorageError.
void measure_checkpoints(comm::World& world,
                         const std::string& directory,
                         const record::CheckpointFacts& facts,
                         double step_s,
                         plan::Machine& machine);

}  // namespace trireme::bench
