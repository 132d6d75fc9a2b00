// SPDX-License-Identifier: Apache-2.0
#include "plan/step.hpp"

#include <cmath>
#include <span>
#include <utility>

#include "base/error.hpp"

namespace trireme::plan {
namespace {

constexpr int most_steps = 8;
constexpr double equal_within = 1e-9;

/// What the engine learns in a micro-step. Of what happens at the same moment a layer's gradients
/// are complete before the next layer is read, and that before it writes.
struct Event {
  enum class Kind : std::uint8_t { ready, read, write };
  double at = 0;  ///< share of the micro-step
  Kind kind = Kind::ready;
  std::size_t index = 0;  ///< of a bucket, or of a reading
};

std::vector<Event> events_of(const StepModel& model) {
  std::vector<Event> events;
  for (std::size_t i = 0; i < model.reads.size(); ++i)
    events.push_back({model.reads[i], Event::Kind::read, i});
  for (std::size_t b = 0; b < model.buckets.size(); ++b) {
    events.push_back({model.buckets[b].written, Event::Kind::write, b});
    events.push_back({model.buckets[b].ready, Event::Kind::ready, b});
  }
  std::ranges::stable_sort(events, {},
                           [](const Event& event) { return std::pair(event.at, event.kind); });
  return events;
}

/// Simulates steps one after another.
class Play {
 public:
  explicit Play(const StepModel& model)
      : model_(model),
        readings_(layout::readings(*model.plan)),
        events_(events_of(model)),
        timeline_(model.sharing),
        reductions_(model.buckets.size()),
        gathers_(model.buckets.size()),
        ready_(model.buckets.size()) {
    TRIREME_EXPECT(model.buckets.size() == model.plan->buckets().size() &&
                       model.reads.size() == readings_.size(),
                   "costs of {} buckets and moments of {} readings for {} and {}",
                   model.buckets.size(), model.reads.size(), model.plan->buckets().size(),
                   readings_.size());
    if (model.layerwise)
      residency_.emplace(*model.plan, *model.layerwise);
    if (model.shares_slots)
      slots_.emplace(*model.plan);
    in_slots_.resize(slots_ ? slots_->num_slots() : 0);
  }

  void step() {
    timeline_.compute(model_.rest_s);
    for (std::int64_t micro = 0; micro < model_.micro_steps; ++micro) micro_step(micro);
    for (std::size_t b = 0; b < model_.buckets.size(); ++b) {
      await(reductions_[b]);
      timeline_.compute(model_.buckets[b].norm_s);
    }
    block(model_.sums_s);
    for (std::size_t b = model_.buckets.size(); b-- > 0;) {
      if (b == model_.matrices_before)
        timeline_.compute(model_.matrices_s);
      timeline_.compute(model_.buckets[b].update_s);
      if (residency_)
        gather(residency_->update(static_cast<BucketIndex>(b)));
      else
        start_gather(b);
    }
    block(model_.control_s);
  }

  [[nodiscard]] const Timeline& timeline() const { return timeline_; }
  /// From the beginning on: time of collectives alone and of exchanges, and bytes that they sent.
  [[nodiscard]] double communication_s() const { return communication_s_; }
  [[nodiscard]] std::int64_t sent_bytes() const { return sent_bytes_; }

 private:
  using Collective = std::optional<std::size_t>;

  void start(Collective& collective, double seconds, std::int64_t bytes, bool overlaps) {
    if (seconds <= 0)
      return;
    communication_s_ += seconds;
    sent_bytes_ += bytes;
    collective = timeline_.enqueue(seconds);
    if (!overlaps)
      await(collective);
  }
  void start_gather(std::size_t b) {
    const BucketCost& cost = model_.buckets[b];
    start(gathers_[b], cost.gather_s, cost.gather_bytes, model_.overlap_parameters);
  }
  void await(Collective& collective) {
    if (collective)
      timeline_.wait(*collective);
    collective.reset();
  }
  void block(double seconds) {
    communication_s_ += seconds;
    timeline_.block(seconds);
  }

  void micro_step(std::int64_t micro) {
    const bool reduces = model_.reduces_each || micro + 1 == model_.micro_steps;
    const double length = reduces ? model_.reducing_micro_step_s : model_.micro_step_s;
    if (micro > 0 && residency_)
      gather(residency_->begin_forward());
    std::ranges::fill(ready_, 0);
    next_ = 0;
    double done = 0;
    for (const Event& event : events_) {
      timeline_.compute(length * (event.at - done));
      done = event.at;
      if (event.kind == Event::Kind::read)
        read(event.index);
      else if (event.kind == Event::Kind::write)
        write(event.index);
      else if (reduces)
        reduce_when_ready(event.index);
    }
    timeline_.compute(length * (1 - done));
    if (!slots_ && reduces && micro + 1 < model_.micro_steps)
      for (Collective& reduction : reductions_) await(reduction);
  }

  void read(std::size_t reading) {
    const std::vector<ParameterIndex>& parameters = readings_[reading].parameters;
    if (residency_)
      gather(residency_->use(parameters));
    for (const ParameterIndex parameter : parameters)
      await(gathers_[at(model_.plan->placement(parameter).bucket)]);
  }

  void gather(std::span<const layout::Residency::Gather> gathers) {
    for (const layout::Residency::Gather& one : gathers) {
      if (one.evicted)
        await(gathers_[at(*one.evicted)]);
      await(gathers_[at(one.bucket)]);
      start_gather(at(one.bucket));
    }
  }

  void write(std::size_t b) {
    if (!slots_)
      return;
    std::optional<std::size_t>& before = in_slots_[slots_->slot(static_cast<BucketIndex>(b))];
    if (before)
      await(reductions_[*before]);
    before = b;
  }

  void reduce_when_ready(std::size_t b) {
    ready_[b] = 1;
    for (; next_ < ready_.size() && ready_[next_] != 0; ++next_) {
      const BucketCost& cost = model_.buckets[next_];
      start(reductions_[next_], cost.reduce_s, cost.reduce_bytes, model_.overlap_gradients);
    }
  }

  const StepModel& model_;
  const std::vector<layout::Reading> readings_;
  const std::vector<Event> events_;
  Timeline timeline_;
  std::optional<layout::Residency> residency_;
  std::optional<layout::Ring> slots_;                 // of gradients
  std::vector<std::optional<std::size_t>> in_slots_;  // the latest bucket of each
  std::vector<Collective> reductions_, gathers_;
  std::vector<char> ready_;  // by bucket, in this micro-step
  std::size_t next_ = 0;     // to be reduced
  double communication_s_ = 0;
  std::int64_t sent_bytes_ = 0;
};

double compute_seconds(const StepModel& model) {
  const double reducing = model.reduces_each ? static_cast<double>(model.micro_steps) : 1.0;
  const double others = static_cast<double>(model.micro_steps) - reducing;
  double seconds = model.rest_s + others * model.micro_step_s +
                   reducing * model.reducing_micro_step_s + model.matrices_s;
  for (const BucketCost& bucket : model.buckets) seconds += bucket.norm_s + bucket.update_s;
  return seconds;
}

}  // namespace

StepPrediction predict_step(const StepModel& model) {
  TRIREME_EXPECT(model.plan != nullptr && model.micro_steps >= 1, "a step of {} micro-steps",
                 model.micro_steps);
  TRIREME_EXPECT(model.reduces_each || !model.shares_slots,
                 "gradients in {} micro-steps share slots, but are reduced once",
                 model.micro_steps);
  StepPrediction result;
  result.compute_s = compute_seconds(model);
  result.exchanges_s = model.sums_s + model.control_s;
  Play play(model);
  for (int step = 0; step < most_steps; ++step) {
    const double begin = play.timeline().now(), exposed = play.timeline().exposed();
    const double shared = play.timeline().shared();
    const double communication = play.communication_s();
    const std::int64_t sent = play.sent_bytes();
    play.step();
    const double took = play.timeline().now() - begin;
    const bool as_before = std::abs(took - result.step_s) <= equal_within * took;
    result.step_s = took;
    result.exposed_s = play.timeline().exposed() - exposed +
                       model.sharing.waiting_during * (play.timeline().shared() - shared);
    result.communication_s = play.communication_s() - communication;
    result.sent_bytes = play.sent_bytes() - sent;
    if (step > 0 && as_before)
      break;
  }
  if (result.communication_s > 0)
    result.exposed_s += model.waiting_share * result.compute_s;
  return result;
}

}  // namespace trireme::plan
