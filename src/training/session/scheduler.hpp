// SPDX-License-Identifier: Apache-2.0
// The job of a batch system that this process belongs to, and when it ends.
//
// Slurm, PBS Pro, LSF and Flux are recognized by the environment of their jobs. They are asked for
// the end by their own commands, since an administrator may move it (`scontrol update TimeLimit`).
// Slurm also tells it in SLURM_JOB_END_TIME. Kubernetes sets no limit that a pod can see: it sends
// a TERM, and kills after the grace period.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "session/stop.hpp"

namespace trireme::session {

struct SchedulerJob {
  std::string name;    ///< "Slurm job 12_3"; "" outside of a job
  std::string number;  ///< "12"; of an array, the same for all its tasks
  std::string index;   ///< "3": position in a job array, or in an indexed Job of Kubernetes; or ""
  std::vector<std::string> question;  ///< command whose output seconds_left() reads; or empty
};
SchedulerJob scheduler_job();

/// Seconds from `now` (since 1970) to the end of the job, from the output of the command `program`.
/// Infinite for a job without a limit; none if the output says nothing about the end.
std::optional<double> seconds_left(const std::string& program,
                                   const std::string& output,
                                   double now);

/// Runs the job's command. None without one, or if it fails, takes over 20 s, or becomes unwanted.
std::optional<double> ask_for_seconds_left(
    const SchedulerJob& job, const std::function<bool()>& unwanted = [] { return false; });

/// Energy in J that Slurm has counted on all hosts of this job step since it began; none outside of
/// one, where Slurm counts none, or if `sstat` takes longer than 2 seconds.
std::optional<double> slurm_joules();

/// The end of the job in seconds since 1970, from SLURM_JOB_END_TIME. None outside Slurm, without a
/// time limit, and for a value that cannot be the end of this job; `warning` then has the reason.
std::optional<double> slurm_end(double now, std::string& warning);

/// Sets the time limit of `signals`: run.walltime, or shortly before the end of the job, whichever
/// comes first. Asks the scheduler at once and then every minute, on its own thread, so that a slow
/// answer delays no step. An answer without an end, or that the job has ended, changes nothing.
/// Warns if the first answer has no end and no other source has one.
class JobClock {
 public:
  /// The run ends at `deadline` on the steady clock if the job does not end earlier. `warn` is
  /// called by this thread and by the object's own.
  JobClock(double deadline, SignalScope& signals, std::function<void(const std::string&)> warn);
  JobClock(const JobClock&) = delete;
  JobClock& operator=(const JobClock&) = delete;

 private:
  void ends_in(double seconds, const std::string& source);
  void ask_every_minute(const std::stop_token& stop);

  const double deadline_;
  SignalScope& signals_;
  const SchedulerJob job_;
  const std::function<void(const std::string&)> warn_;
  std::jthread thread_;  // last: it uses the other members
};

}  // namespace trireme::session
