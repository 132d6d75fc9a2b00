// SPDX-License-Identifier: Apache-2.0
// Training without a model: gradients are a function of (rank, step, parameter, element) and of the
// parameter's value, so that stale or wrong parameters change the result.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/control/world.hpp"
#include "reduce/engine.hpp"

#include "optim/optimizer.hpp"

namespace trireme::testing {

/// Sizes just below and above vector lengths and alignments; one parameter has its own bucket; some
/// have weight decay. One layer, so that all parameters can be read together.
inline std::vector<layout::Parameter> training_table() {
  return {{"wte", {23, 17}, true, true}, {"a", {300}, false, true}, {"b", {65}, false, false},
          {"c", {41, 20}, false, true},  {"d", {1}, false, false},  {"e", {129}, false, true},
          {"f", {7}, false, false}};
}
/// The same table in three layers.
inline std::vector<layout::Parameter> table_of_layers() {
  auto table = training_table();
  for (std::size_t p = 0; p < table.size(); ++p) table[p].group = static_cast<int>(p + 2) / 3;
  return table;
}

/// A table with hidden matrices: wide, tall, square, of one row, and three in one parameter.
inline std::vector<layout::Parameter> matrix_table() {
  return {{"wte", {23, 17}, true, true},           {"qkv", {41, 20}, false, true, {14, 13, 14}},
          {"qkv.bias", {41}, false, false},        {"fc", {37, 20}, false, true, {37}},
          {"proj", {20, 37}, false, true, {20}},   {"row", {1, 65}, false, true, {1}},
          {"square", {24, 24}, false, true, {24}}, {"gain", {7}, false, false}};
}

struct TrainingSetting {
  reduce::ParallelConfig parallel;
  DType dtype = DType::f32;
  double clip_norm = 1.0;
  int steps = 5;
  optim::OnNonFinite on_non_finite = optim::OnNonFinite::stop;
  /// Gradients are multiples of 1/4, whose sums over ranks are exact in any order.
  bool exact_sums = false;
  optim::Kind kind = optim::Kind::adamw;
  optim::DecaySchedule weight_decay_schedule = optim::DecaySchedule::constant;
  std::int64_t momentum_warmup_steps = 0;
  optim::FloatDType moment_dtype = optim::FloatDType::fp32;
  optim::FloatDType product_dtype = optim::FloatDType::fp32;
  std::uint64_t seed = 1337;
  int replicas = 1;
  optim::OuterConfig outer = {};
  int micro_steps = 1;  ///< with reduce_every: micro_step
  std::vector<layout::Parameter> table = training_table();

  [[nodiscard]] optim::OptimizerConfig optimizer() const {
    optim::OptimizerConfig config;
    config.kind = kind;
    config.outer = outer;
    config.learning_rate = 0.02;
    config.schedule.warmup_steps = 2;
    config.weight_decay_schedule = weight_decay_schedule;
    config.muon.momentum_warmup_steps = momentum_warmup_steps;
    config.moment_dtype = moment_dtype;
    config.muon.product_dtype = product_dtype;
    config.clip_norm = clip_norm;
    config.on_non_finite = on_non_finite;
    config.max_skipped_steps = 2;
    return config;
  }
};

/// The remaining fraction of the weight decay if the setting decreases it linearly; else 1.
inline double decay_share(const TrainingSetting& setting, int step) {
  return setting.weight_decay_schedule == optim::DecaySchedule::linear
             ? static_cast<double>(setting.steps - step) / (setting.steps - 1)
             : 1;
}

inline float initial_value(std::size_t parameter, std::int64_t element) {
  return static_cast<float>(static_cast<std::int64_t>(parameter + 1) *
                            ((element * 37) % 101 - 50)) *
         0.01F;
}
inline float gradient_value(
    int rank, int step, std::size_t parameter, std::int64_t element, bool exact) {
  const auto p = static_cast<std::int64_t>(parameter);
  const auto steps = static_cast<float>((element * 13 + p * 5 + step * 3 + rank * 7) % 23 - 11);
  return steps * (exact ? 0.25F : 0.1F / static_cast<float>(rank + 3));
}

struct TrainingResult {
  std::vector<float> parameters;  ///< in registration order
  std::vector<double> grad_norms;
  std::vector<double> layer_norms;  ///< gradient, weight and update of each layer, in even steps
};

/// One rank's engine and optimizer.
class Training {
 public:
  Training(const TrainingSetting& setting,
           comm::World& world,
           comm::Communicator& communicator,
           device::Device& device,
           device::Stream& compute)
      : setting_(setting),
        world_(world),
        device_(device),
        compute_(compute),
        plan_(setting.table,
              {.ranks = communicator.size(),
               .bucket_elements = setting.parallel.bucket_elements.value_or(40'000'000),
               .padding = setting.parallel.padding,
               .replicas = {world.size(), setting.replicas}}),
        engine_(plan_, setting.dtype, setting.parallel, communicator, device, compute),
        optimizer_(
            setting.optimizer(), engine_, communicator, world, device, compute, setting.seed) {
    for (const optim::StatePiece& piece : optimizer_.state()) {
      std::vector<float> values;
      for (std::int64_t i = 0; i < piece.elements(); ++i)
        values.push_back(initial_value(at(piece.parameter), piece.parameter_begin + i));
      copy(piece.master(), view_of(values.data(), piece.elements()));
    }
    optimizer_.publish_parameters();
  }

  [[nodiscard]] const layout::Plan& plan() const { return plan_; }
  [[nodiscard]] reduce::Engine& engine() { return engine_; }
  [[nodiscard]] optim::Optimizer& optimizer() { return optimizer_; }
  [[nodiscard]] const optim::Optimizer& optimizer() const { return optimizer_; }

  void backward(int step) {
    engine_.begin_step();
    for (int micro = 0; micro < setting_.micro_steps; ++micro) {
      if (micro > 0)
        engine_.next_micro_step();
      micro_step(step, micro == poisoned_micro_step_);
    }
  }
  void micro_step(int step, bool poisoned) {
    engine_.wait_for_parameters();
    for (std::size_t p = plan_.parameters().size(); p-- > 0;) {
      const auto index = static_cast<ParameterIndex>(p);
      engine_.before_write(index);
      const View gradient = engine_.gradient(index);
      std::vector<float> values = read(gradient);
      for (std::int64_t i = 0; i < gradient.elements; ++i)
        values[static_cast<std::size_t>(i)] +=
            gradient_value(like_rank_.value_or(world_.rank()), step, p, i, setting_.exact_sums);
      if (p == poisoned_ && poisoned)
        values[poisoned_element_] = poison_;
      copy(gradient, view_of(values.data(), gradient.elements));
      engine_.mark_ready(index);
    }
  }
  void enqueue_update(int step) {
    const int terms = setting_.outer.on() ? plan_.ranks() : world_.size();
    optimizer_.step(step, setting_.steps, 1.0 / terms, nullptr,
                    step % 2 == 0 && !setting_.outer.on() ? &layer_norms_ : nullptr);
  }
  optim::StepResult update(int step) {
    enqueue_update(step);
    return optimizer_.result(step);
  }
  TrainingResult run() {
    TrainingResult result;
    for (int step = 1; step <= setting_.steps; ++step) {
      backward(step);
      result.grad_norms.push_back(update(step).grad_norm);
      if (step % 2 == 0)
        for (const optim::LayerNorm& norm : layer_norms_.norms(step, world_))
          result.layer_norms.insert(result.layer_norms.end(),
                                    {norm.gradient, norm.weight, norm.update});
    }
    result.parameters = parameters();
    return result;
  }
  /// In registration order.
  std::vector<float> parameters() {
    engine_.wait_for_parameters();
    std::vector<float> all;
    for (std::size_t p = 0; p < plan_.parameters().size(); ++p) {
      const auto values = read(engine_.parameter(static_cast<ParameterIndex>(p)));
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }
  /// From now on every backward() gives the gradients of this rank.
  void be_like_rank(int rank) { like_rank_ = rank; }
  /// Every backward() from now on gives `value` as this element's gradient, in one micro-step.
  void poison(std::size_t parameter, std::size_t element, float value, int micro_step = 0) {
    poisoned_micro_step_ = micro_step;
    poisoned_ = parameter;
    poisoned_element_ = element;
    poison_ = value;
  }

 private:
  /// Copies between host and device, in either direction, or inside one.
  void copy(View to, ConstView from) {
    device_.copy(to, from, compute_);
    compute_.synchronize();
  }
  std::vector<float> read(ConstView from) {
    std::vector<float> values(static_cast<std::size_t>(from.elements));
    if (from.dtype == DType::f32) {
      copy(view_of(values.data(), from.elements), from);
      return values;
    }
    std::vector<Bf16> rounded(values.size());
    copy(view_of(rounded.data(), from.elements), from);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(rounded[i]);
    return values;
  }

  TrainingSetting setting_;
  comm::World& world_;
  device::Device& device_;
  device::Stream& compute_;
  layout::Plan plan_;
  reduce::Engine engine_;
  optim::Optimizer optimizer_;
  optim::LayerNorms layer_norms_{plan_, device_, 64};  // parameters have several chunks
  std::size_t poisoned_ = std::numeric_limits<std::size_t>::max();  // none
  std::size_t poisoned_element_ = 0;
  float poison_ = 0;
  int poisoned_micro_step_ = 0;
  std::optional<int> like_rank_;
};

}  // namespace trireme::testing
