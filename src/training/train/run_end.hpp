// SPDX-License-Identifier: Apache-2.0
// External reasons to end a run other than signals: time limits, and requests from another
// terminal.
#pragma once

#include <memory>
#include <string>

#include "base/log.hpp"

#include "comm/control/world.hpp"

#include "record/run/run_directory.hpp"
#include "record/run/run_requests.hpp"

#include "session/job.hpp"
#include "session/stop.hpp"

namespace trireme::train {

/// When the run must end: run.walltime after `started_at`, or shortly before the end of the Slurm
/// job, whichever comes first. On rank 0 it limits the preparation of the run in `signals` as well.
/// Warns of an end of the job that cannot be.
session::TimeLimit limit_of(const session::Job& job,
                            double started_at,
                            const comm::World& world,
                            Log& log,
                            session::SignalScope& signals);

/// Hands the requests of `trireme stop` and `trireme save` to `signals`; null on all ranks but 0.
std::unique_ptr<record::RunRequests> listen(const record::RunDirectory& directory,
                                            const comm::World& world,
                                            session::SignalScope& signals);

}  // namespace trireme::train
