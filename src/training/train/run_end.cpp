// SPDX-License-Identifier: Apache-2.0
#include "train/run_end.hpp"

#include <optional>

#include "device/recorder.hpp"

namespace trireme::train {
namespace {

/// Slurm kills at the job's end, so the record is closed and MPI has ended a little earlier.
constexpr double slurm_margin_s = 5;

}  // namespace

session::TimeLimit limit_of(const session::Job& job,
                            double started_at,
                            const comm::World& world,
                            Log& log,
                            session::SignalScope& signals) {
  std::string warning;
  session::TimeLimit limit;
  if (job.run.walltime.given())
    limit.deadline = started_at + job.run.walltime.value->seconds;
  const double now = device::calendar_seconds();
  if (const auto end = session::slurm_end(now, warning)) {
    const double steady = device::steady_seconds() + *end - slurm_margin_s - now;
    if (steady < limit.deadline)
      limit = {steady, session::StopReason::job_end};
  }
  if (world.rank() == 0) {
    signals.limit_preparation(limit);
    if (!warning.empty())
      log.warning("{}", warning);
  }
  return limit;
}

std::unique_ptr<record::RunRequests> listen(const record::RunDirectory& directory,
                                            const comm::World& world,
                                            session::SignalScope& signals) {
  if (world.rank() != 0)
    return nullptr;
  return std::make_unique<record::RunRequests>(
      directory.path(), [&signals](record::RunRequest request) {
        switch (request) {
          case record::RunRequest::save:
            return signals.request_checkpoint();
          case record::RunRequest::stop:
            return signals.request_stop(session::StopReason::request);
          case record::RunRequest::stop_now:
            return signals.end_now(
                "`trireme stop --now` ended the run: the steps since the newest checkpoint are "
                "lost.");
        }
      });
}

}  // namespace trireme::train
