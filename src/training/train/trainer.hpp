// SPDX-License-Identifier: Apache-2.0
// The training run, from its start to the last checkpoint. Only this component connects all others.
//
// Between steps (session/session.hpp), in this order: record, evaluation, sample, checkpoint, stop.
//
// Steps are enqueued. Their results are processed (recorded, printed, refused if a gradient is not
// finite) when all devices have finished them, at the latest when the next step is enqueued. So a
// device never waits for its host, which is at most one step ahead.
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

/// Trains as `job` states. Collective. Returns `done`, or session::code_of() of the reason if the
/// run stopped early after a checkpoint. `measure_ceiling` is called once, after the last step.
/// `copies` are used again after a loss.
ExitCode train(const session::Job& job,
               comm::World& world,
               Log& log,
               session::SignalScope& signals,
               MeasureCeiling measure_ceiling,
               session::MemoryCopies& copies);

}  // namespace trireme::train
