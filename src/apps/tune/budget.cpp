// SPDX-License-Identifier: Apache-2.0
#include "tune/budget.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <vector>

#include "base/error.hpp"
#include "base/quantile.hpp"
#include "base/round_up.hpp"
#include "device/recorder.hpp"

#include "session/saver.hpp"
#include "session/session.hpp"

namespace trireme::tune {
namespace {

/// From the beginning of the second micro-step to that of the third.
double between_micro_steps(const device::Recorder& recorder) {
  double second = 0, third = 0;
  for (const device::TimeSample& sample : recorder.samples())
    if (static_cast<device::SpanName>(sample.name) == device::SpanName::data_next &&
        sample.micro == 1)
      second = sample.begin_s;
    else if (static_cast<device::SpanName>(sample.name) == device::SpanName::data_next &&
             sample.micro == 2)
      third = sample.begin_s;
  TRIREME_EXPECT(third > second, "micro-steps that begin at {} and {}", second, third);
  return third - second;
}

/// The job with at most about `most_micro_steps` per step (whole leaves), without evaluation and
/// replica checks.
session::Job shortened(session::Job job, int ranks, std::int64_t most_micro_steps) {
  const std::int64_t leaves = session::batches_of(job, job.batch.sequences, ranks).leaves;
  const std::int64_t parts = leaves > 0 ? leaves : ranks;
  // Leaves are halved from rank to rank (leaves_of_term), so some rank may have as few as this.
  const std::int64_t fewest = std::max<std::int64_t>(
      leaves / static_cast<std::int64_t>(std::bit_ceil(static_cast<unsigned>(ranks))), 1);
  const std::int64_t of_a_part = divided_up(std::max(most_micro_steps, least_micro_steps), fewest);
  job.batch.sequences =
      std::min(job.batch.sequences, of_a_part * parts * job.batch.micro_sequences);
  job.batch.schedule.clear();
  job.record.spans = true;
  job.evaluate = {};
  job.parallel.check_replicas = {.every_steps = 0, .at_checkpoints = false};
  return job;
}

constexpr int most_steps = 15;

}  // namespace

double seconds_of_a_step(const session::Job& the_job,
                         const batches::Split& data,
                         comm::World& world,
                         const TimedSteps& request) {
  const auto micro_steps = [&](const session::Job& one) {
    return session::batches_of(one, one.batch.sequences, world.size()).micro_steps();
  };
  const session::Job job =
      shortened(the_job, world.size(), std::min(request.most_micro_steps, micro_steps(the_job)));
  const std::int64_t missing = micro_steps(the_job) - micro_steps(job);
  session::Session session(job, data, world);
  session::Saver(session, world).initialize();
  std::vector<double> seconds;
  for (int number = 1; number <= request.warmups + request.steps; ++number) {
    session.recorder.clear();
    const session::StepOutcome outcome = session.step(number, [] { return session::Requests{}; });
    if (number <= request.warmups)
      continue;
    const double rest =
        missing > 0 ? static_cast<double>(missing) * between_micro_steps(session.recorder) : 0;
    seconds.push_back(outcome.seconds + rest);
  }
  session.engine.wait_for_parameters();
  world.barrier();  // no rank frees memory that a peer still reads
  return comm::largest_of_ranks(world, std::array{median(seconds)}).front();
}

TimedSteps steps_within(double seconds, const OwnStep& own, std::size_t sessions) {
  TimedSteps timed;
  const double fit = seconds / (static_cast<double>(sessions) * own.seconds) - timed.warmups;
  timed.steps = static_cast<int>(std::clamp(fit, 0.0, 1.0 * most_steps));
  return timed.steps > 0 ? timed : shortest_steps;
}

std::size_t sessions_within(double seconds, const OwnStep& own) {
  const double part = std::min(1.0, static_cast<double>(shortest_steps.most_micro_steps) /
                                        static_cast<double>(own.micro_steps));
  const double fit =
      seconds / ((shortest_steps.warmups + shortest_steps.steps) * part * own.seconds);
  return static_cast<std::size_t>(std::min(fit, 1e6));
}

TuneBudget budget_of(double seconds, const OwnStep& own, std::size_t settings, int rounds) {
  TuneBudget budget{steps_within(seconds, own, settings * static_cast<std::size_t>(rounds)),
                    rounds};
  if (budget.timed.most_micro_steps == shortest_steps.most_micro_steps)
    budget.rounds =
        std::clamp(static_cast<int>(sessions_within(seconds, own) / settings), rounds / 2, rounds);
  return budget;
}

}  // namespace trireme::tune
