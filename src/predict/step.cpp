// SPDX-License-Identifier: Apache-2.0
#include "predict/step.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "base/error.hpp"

namespace trireme::predict {
namespace {

constexpr int most_steps = 8;
constexpr double equal_within = 1e-9;

/// Plays steps one after another.
class Play {
 public:
  explicit Play(const StepModel& model)
      : model_(model),
        timeline_(model.sharing),
        reductions_(model.buckets.size()),
        gathers_(model.buckets.size()),
        by_ready_(order_by(&BucketCost::ready_s)),
        by_need_(order_by(&BucketCost::needed_s)) {}

  void step() {
    timeline_.compute(model_.rest_s);
    for (std::int64_t micro = 0; micro < model_.micro_steps; ++micro) micro_step(micro);
    for (std::size_t b = 0; b < model_.buckets.size(); ++b) {
      await(reductions_[b]);
      timeline_.compute(model_.buckets[b].norm_s);
    }
    timeline_.block(model_.sums_s);
    for (std::size_t b = model_.buckets.size(); b-- > 0;) {
      if (b == model_.matrices_before)
        timeline_.compute(model_.matrices_s);
      timeline_.compute(model_.buckets[b].update_s);
      start(gathers_[b], model_.buckets[b].gather_s, model_.overlap_parameters);
    }
    timeline_.block(model_.control_s);
  }

  [[nodiscard]] const Timeline& timeline() const { return timeline_; }

 private:
  using Collective = std::optional<std::size_t>;

  [[nodiscard]] std::vector<std::size_t> order_by(double BucketCost::*time) const {
    std::vector<std::size_t> order(model_.buckets.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, {}, [&](std::size_t b) { return model_.buckets[b].*time; });
    return order;
  }

  void start(Collective& collective, double seconds, bool overlaps) {
    if (seconds <= 0)
      return;
    collective = timeline_.enqueue(seconds);
    if (!overlaps)
      await(collective);
  }
  void await(Collective& collective) {
    if (collective)
      timeline_.wait(*collective);
    collective.reset();
  }

  void micro_step(std::int64_t micro) {
    const bool reduces = model_.reduces_each || micro + 1 == model_.micro_steps;
    const double length = reduces ? model_.reducing_micro_step_s : model_.micro_step_s;
    double done = 0;
    const auto compute_until = [&](double time) {
      timeline_.compute(std::max(time - done, 0.0));
      done = std::max(time, done);
    };
    // Forward reads parameters before backward completes gradients.
    if (micro == 0)
      for (const std::size_t b : by_need_) {
        compute_until(model_.buckets[b].needed_s);
        await(gathers_[b]);
      }
    if (reduces)
      reduce_when_ready(compute_until);
    compute_until(length);
    if (reduces && micro + 1 < model_.micro_steps)
      for (Collective& reduction : reductions_) await(reduction);
  }

  template <class ComputeUntil>
  void reduce_when_ready(const ComputeUntil& compute_until) {
    std::vector<char> ready(model_.buckets.size(), 0);
    std::size_t next = 0;
    for (const std::size_t b : by_ready_) {
      compute_until(model_.buckets[b].ready_s);
      ready[b] = 1;
      for (; next < ready.size() && ready[next] != 0; ++next)
        start(reductions_[next], model_.buckets[next].reduce_s, model_.overlap_gradients);
    }
  }

  const StepModel& model_;
  Timeline timeline_;
  std::vector<Collective> reductions_, gathers_;
  std::vector<std::size_t> by_ready_, by_need_;
};

double reducing_micro_steps(const StepModel& model) {
  return model.reduces_each ? static_cast<double>(model.micro_steps) : 1.0;
}

}  // namespace

StepPrediction predict_step(const StepModel& model) {
  TRIREME_EXPECT(model.micro_steps >= 1, "a step of {} micro-steps", model.micro_steps);
  StepPrediction result;
  const double reducing = reducing_micro_steps(model);
  const double others = static_cast<double>(model.micro_steps) - reducing;
  result.compute_s = model.rest_s + others * model.micro_step_s +
                     reducing * model.reducing_micro_step_s + model.matrices_s;
  result.communication_s = model.sums_s + model.control_s;
  for (const BucketCost& bucket : model.buckets) {
    result.compute_s += bucket.norm_s + bucket.update_s;
    result.communication_s += reducing * bucket.reduce_s + bucket.gather_s;
  }
  Play play(model);
  for (int step = 0; step < most_steps; ++step) {
    const double begin = play.timeline().now(), exposed = play.timeline().exposed();
    play.step();
    const double took = play.timeline().now() - begin;
    const bool as_before = std::abs(took - result.step_s) <= equal_within * took;
    result.step_s = took;
    result.exposed_s = play.timeline().exposed() - exposed;
    if (step > 0 && as_before)
      break;
  }
  if (result.communication_s > 0)
    result.exposed_s += model.waiting_share * result.compute_s;
  return result;
}

}  // namespace trireme::predict
