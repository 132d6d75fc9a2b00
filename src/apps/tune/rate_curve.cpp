// SPDX-License-Identifier: Apache-2.0
#include "tune/rate_curve.hpp"

#include <cmath>
#include <numeric>

#include <fmt/format.h>
#include <omp.h>

#include "base/error.hpp"
#include "base/json.hpp"

#include "session/machine.hpp"
#include "session/saver.hpp"
#include "session/session.hpp"
#include "train/progress.hpp"

namespace trireme::tune {
namespace {

/// Sets value and slope at `center` of the least-squares line through `rates` and `losses`.
void fit(RatePoint& center, std::span<const double> rates, std::span<const double> losses) {
  const auto count = static_cast<double>(rates.size());
  const double mean_loss = std::accumulate(losses.begin(), losses.end(), 0.0) / count;
  double mean_x = 0;
  for (const double rate : rates) mean_x += std::log(rate / center.rate) / count;
  double xx = 0, xy = 0;
  for (std::size_t i = 0; i < rates.size(); ++i) {
    const double x = std::log(rates[i] / center.rate) - mean_x;
    xx += x * x;
    xy += x * (losses[i] - mean_loss);
  }
  center.slope = xx > 0 ? xy / xx : 0;
  center.smoothed = mean_loss - center.slope * mean_x;
}

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
  if (!std::isnormal(request.low / request.high))
    throw UserError(fmt::format("--from and --to are too far apart: they are {} and {}",
                                request.low, request.high));
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

RateCurve rate_curve(std::span<const double> rates,
                     std::span<const double> losses,
                     const SweepRequest& request,
                     std::optional<double> not_finite) {
  TRIREME_EXPECT(rates.size() == losses.size(), "{} rates of {} losses", rates.size(),
                 losses.size());
  RateCurve curve;
  const auto window = static_cast<std::size_t>(request.window());
  for (std::size_t i = 0; i < rates.size(); ++i) {
    // Equal numbers on both sides, so that the ends are not biased by a half window.
    const std::size_t side = std::min({window, i, rates.size() - 1 - i});
    RatePoint point{.rate = rates[i], .loss = losses[i]};
    fit(point, rates.subspan(i - side, 2 * side + 1), losses.subspan(i - side, 2 * side + 1));
    curve.points.push_back(point);
  }
  const auto& points = curve.points;
  const auto lowest = std::ranges::min_element(points, {}, &RatePoint::smoothed);
  Divergence divergence(request);
  curve.diverges = not_finite;
  if (const auto last =
          std::ranges::find_if(losses, [&](double loss) { return divergence.add(loss); });
      last != losses.end())
    curve.diverges = rates[static_cast<std::size_t>(last - losses.begin()) - window / 2];
  // Slopes near the beginning are meaningless, because there are too few points before them.
  const auto first = points.begin() + std::min(std::ssize(points), request.window());
  if (first < lowest)
    if (const auto steepest = std::min_element(
            first, lowest,
            [](const RatePoint& a, const RatePoint& b) { return a.slope < b.slope; });
        steepest->slope < 0)
      curve.steepest = steepest->rate;
  if (curve.steepest)
    curve.suggested = std::min(*curve.steepest, curve.diverges.value_or(INFINITY) / 10);
  return curve;
}

bool Divergence::add(double loss) {
  losses_.push_back(loss);
  const std::int64_t window = request_.window();
  if (std::ssize(losses_) < window)
    return false;
  const double mean =
      std::accumulate(losses_.end() - window, losses_.end(), 0.0) / static_cast<double>(window);
  lowest_ = std::min(lowest_, mean);
  return mean > request_.multiple * lowest_;
}

std::string rate_table(const RateCurve& curve) {
  const std::size_t every = std::max<std::size_t>(1, (curve.points.size() + 19) / 20);
  std::string text = fmt::format("{:>10} {:>10} {:>10}\n", "rate", "loss", "smoothed");
  for (std::size_t i = 0; i < curve.points.size(); ++i)
    if (const RatePoint& point = curve.points[i]; i % every == 0 || i + 1 == curve.points.size())
      text +=
          fmt::format("{:>10.3e} {:>10.4f} {:>10.4f}\n", point.rate, point.loss, point.smoothed);
  if (!curve.ended.empty())
    text += fmt::format("The sweep ended early: {}.\n", curve.ended);
  text += curve.steepest
              ? fmt::format("The loss decreases fastest at a rate of {:.3g}.\n", *curve.steepest)
              : fmt::format(
                    "The loss does not decrease in this range. Sweep {} rates with more steps.\n",
                    curve.diverges ? "from lower" : "to higher");
  text += curve.diverges ? fmt::format("It diverges at {:.3g}; a tenth of that is {:.3g}.\n",
                                       *curve.diverges, *curve.diverges / 10)
                         : "It does not diverge in this range.\n";
  if (curve.suggested)
    text += fmt::format("Suggested: optimizer.learning_rate={:.2g}\n", *curve.suggested);
  return text;
}

std::string rate_json(const RateCurve& curve) {
  Json json = {{"filetype", "trireme-rates"},
               {"version", {1, 0}},
               {"ended", curve.ended},
               {"suggested", json_or_null(curve.suggested)},
               {"steepest", json_or_null(curve.steepest)},
               {"diverges", json_or_null(curve.diverges)}};
  for (const RatePoint& point : curve.points) {
    json["rate"].push_back(point.rate);
    json["loss"].push_back(point.loss);
    json["smoothed"].push_back(point.smoothed);
    json["slope"].push_back(point.slope);
  }
  return json_text(json);
}

RateCurve find_rate(const session::Job& the_job,
                    comm::World& world,
                    Log& log,
                    const SweepRequest& request) {
  expect_range(the_job, request);
  omp_set_num_threads(session::choose_threads(the_job.run.threads, world));
  const session::Job job = sweep_of(the_job, request);
  const session::TemporaryCache cache(job, world);
  const batches::Split data = session::open_data(job, cache.path(), world, log);
  session::Session session(job, data, world);
  session::Saver saver(session, world);
  if (job.run.initial_weights.empty())
    saver.initialize();
  else
    saver.start_from_files(log);
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
      progress->step(number, outcome,
                     static_cast<double>((request.steps - number) * outcome.tokens));
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
