// SPDX-License-Identifier: Apache-2.0
#include "tune/find_rate.hpp"

#include <limits>
#include <optional>
#include <vector>

#include <fmt/format.h>
#include <omp.h>

#include "base/error.hpp"

#include "comm/control/temporary_directory.hpp"

#include "session/machine.hpp"
#include "session/saver.hpp"
#include "session/session.hpp"
#include "train/progress.hpp"

namespace trireme::tune {
namespace {

/// The job with a sweep instead of its schedule, without records and evaluation.
session::Job sweep_of(session::Job job, const SweepRequest& request) {
  job.run.steps = request.steps;
  job.record.spans = false;
  job.evaluate = {};
  job.batch.schedule.clear();
  job.optimizer.schedule.steps.value.reset();
  job.optimizer.weight_decay_schedule = optim::DecaySchedule::constant;
  job.optimizer.schedule.sweep_from = request.low / request.high;
  for (optim::GroupRule& group : job.optimizer.groups)
    if (group.learning_rate.given())
      *group.learning_rate.value *= request.high / job.optimizer.learning_rate;
  job.optimizer.learning_rate = request.high;
  job.optimizer.on_non_finite = optim::OnNonFinite::skip;  // the sweep ends there
  job.optimizer.max_skipped_steps = std::numeric_limits<std::int64_t>::max();
  return job;
}

void expect_range(const session::Job& job, const SweepRequest& request) {
  if (!(0 < request.low && request.low < request.high))
    throw UserError(fmt::format("--from must be below --to, but they are {} and {}", request.low,
                                request.high));
  if (job.optimizer.learning_rate > 0)
    return;
  for (const optim::GroupRule& group : job.optimizer.groups)
    if (group.learning_rate.given())
      throw UserError(
          fmt::format("optimizer.groups has a learning rate for '{}', which keeps its ratio to "
                      "optimizer.learning_rate, but that is 0",
                      group.match));
}

}  // namespace

RateCurve find_rate(const session::Job& the_job,
                    comm::World& world,
                    Log& log,
                    const SweepRequest& request) {
  expect_range(the_job, request);
  omp_set_num_threads(session::choose_threads(the_job.run.threads, world));
  const session::Job job = sweep_of(the_job, request);
  const comm::TemporaryDirectory cache(world);
  const batches::Split data = session::open_data(job, cache.path(), world, log);
  session::Session session(job, data, world);
  session::Saver saver(job, session.plan, session.engine, session.optimizer, *session.device,
                       world);
  if (job.run.initial_weights.empty())
    saver.initialize(*session.compute_stream);
  else
    saver.start_from_files(log, *session.compute_stream);
  for (const std::string& line : session.choices) log.warning("{}", line);
  std::optional<train::Progress> progress;
  if (world.rank() == 0)
    progress.emplace(log, train::terminal_listens(), 1, request.steps,
                     model::flops_per_token(job.shape));

  std::vector<double> rates, losses;
  Divergence divergence(request);
  std::optional<double> not_finite;
  std::string ended;
  for (std::int64_t number = 1; number <= request.steps && ended.empty(); ++number) {
    const session::StepOutcome outcome = session.step(number, [] { return session::Requests{}; });
    if (progress)
      progress->step(
          {.step = number,
           .loss = outcome.loss,
           .bits_per_byte = outcome.bits_per_byte,
           .grad_norm = outcome.grad_norm,
           .learning_rate = outcome.learning_rate,
           .seconds = outcome.seconds,
           .tokens = static_cast<double>(outcome.tokens),
           .tokens_left = static_cast<double>((request.steps - number) * outcome.tokens)});
    if (!outcome.not_finite.empty()) {
      ended = fmt::format("the gradient of step {} was not finite: {}", number, outcome.not_finite);
      not_finite = outcome.learning_rate;
      break;
    }
    rates.push_back(outcome.learning_rate);
    losses.push_back(outcome.loss);
    if (divergence.add(outcome.loss) && number < request.steps)
      ended = fmt::format("after step {} of {} the loss was above {} times its minimum", number,
                          request.steps, request.multiple);
  }
  session.engine.wait_for_parameters();
  progress.reset();
  if (losses.empty())
    throw UserError(fmt::format("the sweep ended in its first step: {}", ended));
  RateCurve curve = rate_curve(rates, losses, request, not_finite);
  curve.ended = std::move(ended);
  return curve;
}

}  // namespace trireme::tune
