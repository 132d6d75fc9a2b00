// SPDX-License-Identifier: Apache-2.0
// The run: from an opened machine to the last checkpoint. This class alone connects all rooms.
//
// Between steps (session/session.hpp), in this order: record, evaluation, sample, checkpoint, stop.
//
// Steps are enqueued, and looked at (recorded, printed, refused when a gradient is not finite) as
// soon as every rank's device has finished them, at the latest when the next one is enqueued: so a
// device never waits for its host, which is one step ahead at most.
//
// 1. Collective calls happen in the same order on all ranks, also when one rank fails; what may
//    fail on some ranks only goes through comm::together().
// 2. A run that finds a checkpoint in its directory continues after it and gives the same bits as
//    one that was never interrupted.
// 3. Evaluation, sample, checkpoint and stop come after the results of the step are read.
// 4. Rank 0 alone writes the record, the log and deck.resolved.yaml.
#pragma once

#include "base/error.hpp"
#include "base/log.hpp"

#include "comm/control/world.hpp"

#include "session/job.hpp"
#include "session/memory_copies.hpp"
#include "session/session.hpp"
#include "session/stop.hpp"

namespace trireme::train {

/// Measures what matrix products reach on this machine: FLOP/s of one rank, or 0 if no memory is
/// left for them. Collective.
using MeasureCeiling = double (*)(const session::Session& session, comm::World& world);

/// Trains by `job`. All ranks call. Returns `done`, or session::code_of() the reason when it
/// stopped early after a checkpoint. `measure_ceiling` is called once, after the last step. `copies`
/// are used again after a loss.
ExitCode train(const session::Job& job,
               comm::World& world,
               Log& log,
               session::SignalScope& signals,
               MeasureCeiling measure_ceiling,
               session::MemoryCopies& copies);

}  // namespace trireme::train
