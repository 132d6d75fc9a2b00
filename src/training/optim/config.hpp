// SPDX-License-Identifier: Apache-2.0
// The deck section `optimizer`: AdamW or Muon, parameter groups, and the learning-rate schedule
// (schedule_config.hpp).
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/dtype.hpp"
#include "base/key.hpp"

#include "ops/optimizer/muon.hpp"
#include "ops/optimizer/orthogonalize_options.hpp"

#include "optim/schedule_config.hpp"

namespace trireme::optim {

/// muon: hidden matrices by orthogonalized momentum, all other parameters by AdamW.
enum class Kind : std::uint8_t { adamw, muon };

/// How weight decay changes over a run.
enum class DecaySchedule : std::uint8_t { constant, linear, cosine, rate };

/// Of moments, where bf16 is rounded at random (ops/optimizer/moment_rounding.hpp), and of Muon's
/// products.
enum class FloatDType : std::uint8_t { fp32, bf16 };

constexpr DType dtype_of(FloatDType type) {
  return type == FloatDType::bf16 ? DType::bf16 : DType::f32;
}

/// What a run does when a gradient is NaN or infinite.
enum class OnNonFinite : std::uint8_t { stop, skip };

/// One rule of optimizer.groups. The rule does not change values that it does not give.
struct GroupRule {
  std::string match;
  Or<double> weight_decay{.value = {}, .keyword = "unchanged"};
  Or<double> learning_rate{.value = {}, .keyword = "unchanged"};
};

/// Muon's keys, besides those that it shares with AdamW.
struct MuonConfig {
  double momentum = 0.95;
  std::int64_t momentum_warmup_steps = 0;
  double momentum_start = 0.85;
  bool nesterov = ops::MuonStep().nesterov;
  std::int64_t steps = ops::OrthogonalizeOptions().steps;
  ops::Coefficients coefficients = ops::OrthogonalizeOptions().coefficients;
  FloatDType product_dtype = FloatDType::fp32;
  double update_rms = 0.2;
};

struct OptimizerConfig {
  Kind kind = Kind::adamw;
  double learning_rate = 6e-4;
  ScheduleConfig schedule;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  FloatDType moment_dtype = FloatDType::fp32;
  MuonConfig muon;
  double weight_decay = 0.1;
  DecaySchedule weight_decay_schedule = DecaySchedule::constant;
  std::vector<GroupRule> groups;
  double clip_norm = 1.0;
  OnNonFinite on_non_finite = OnNonFinite::stop;
  std::int64_t max_skipped_steps = 10;
};

template <class V>
void describe(V& v, GroupRule& c) {
  v("match", c.match,
    {.help = "Names of parameters; * is any text and ? any character.", .required = true});
  v("weight_decay", c.weight_decay,
    {.help = "Weight decay of these parameters.", .min = 0.0, .max = 10.0});
  v("learning_rate", c.learning_rate,
    {.help = "Peak learning rate of these parameters; the schedule is the same.",
     .min = 0.0,
     .max = 1.0});
}

template <class V>
void describe(V& v, MuonConfig& c) {
  v("momentum", c.momentum,
    {.help = "Decay of the mean of gradients, after its warm-up.",
     .min = 0.0,
     .max = 1.0,
     .below_max = true});
  v("momentum_warmup_steps", c.momentum_warmup_steps,
    {.unit = "steps",
     .help = "The momentum goes from momentum_start in a straight line and has its own value after "
             "so many steps. 0: it has it from the first step on.",
     .min = 0,
     .max = 1'000'000'000,
     .change = Change::asked});
  v("momentum_start", c.momentum_start,
    {.help = "Momentum at the first step of its warm-up.",
     .min = 0.0,
     .max = 1.0,
     .below_max = true,
     .change = Change::asked});
  v("nesterov", c.nesterov,
    {.help = "The gradient counts once more in what is orthogonalized.", .change = Change::asked});
  v("steps", c.steps,
    {.help = "Steps of the orthogonalization, with three matrix products each.",
     .min = 1,
     .max = 100,
     .change = Change::asked});
  v("coefficients", c.coefficients,
    {.help = "newton_schulz: one polynomial for all steps; polar_express: one for each of five.",
     .change = Change::asked});
  v("product_dtype", c.product_dtype,
    {.help =
         "Type in which the orthogonalization multiplies. bf16 is as fast as the model's products "
         "in bf16, and takes half of the scratch.",
     .change = Change::asked});
  v("update_rms", c.update_rms,
    {.help = "Root mean square of an update's elements over the learning rate. About 0.2 is what "
             "AdamW has, so its learning rate and weight decay carry over.",
     .min = 0.0,
     .max = 100.0,
     .above_min = true});
}

template <class V>
void describe(V& v, OptimizerConfig& c) {
  v("kind", c.kind,
    {.help = "muon: the weights of linear layers inside of blocks by orthogonalized "
             "momentum; embeddings, head, gains and biases by AdamW.",
     .change = Change::never});
  v("learning_rate", c.learning_rate,
    {.help = "Peak learning rate after warm-up.", .min = 0.0, .max = 1.0});
  v.section("schedule", c.schedule);
  v("beta1", c.beta1,
    {.help = "Decay of the first moment.", .min = 0.0, .max = 1.0, .below_max = true});
  v("beta2", c.beta2,
    {.help = "Decay of the second moment.", .min = 0.0, .max = 1.0, .below_max = true});
  v("epsilon", c.epsilon,
    {.help = "Added to the root of the second moment.", .min = 0.0, .max = 1.0, .above_min = true});
  v("moment_dtype", c.moment_dtype,
    {.help =
         "Type in which moments are stored. bf16 takes 4 bytes less per element, and is rounded "
         "at random, by bits that depend on run.seed, step and element only.",
     .change = Change::asked});
  v.section("muon", c.muon);
  v("weight_decay", c.weight_decay,
    {.help = "Decoupled decay of matrices; biases and gains have none.", .min = 0.0, .max = 10.0});
  v("weight_decay_schedule", c.weight_decay_schedule,
    {.help = "How weight_decay changes, that of groups included: constant; linear and cosine "
             "fall to 0 at the schedule's last step; rate: in proportion to the learning rate, "
             "warm-up included.",
     .change = Change::asked});
  v.list("groups", c.groups,
         {.help = "Rules for parameters with other numbers. A parameter belongs to the first rule "
                  "that its name matches; trireme plan prints the groups."});
  v("clip_norm", c.clip_norm,
    {.help = "Largest L2 norm of the gradient; 0: no clipping.", .min = 0.0});
  v("on_non_finite", c.on_non_finite,
    {.help = "When the gradient of a step is NaN or infinite, nothing is updated, and the run "
             "stops, or skips the step: it is recorded in /skipped, and step count, data and "
             "learning rate advance."});
  v("max_skipped_steps", c.max_skipped_steps,
    {.unit = "steps",
     .help = "With on_non_finite: skip, so many steps in a row are skipped; the next one stops the "
             "run.",
     .min = 1});
}

}  // namespace trireme::optim

template <>
struct trireme::EnumNames<trireme::optim::Kind> {
  using enum optim::Kind;
  static constexpr std::pair<optim::Kind, const char*> table[] = {{adamw, "adamw"}, {muon, "muon"}};
};
template <>
struct trireme::EnumNames<trireme::optim::FloatDType> {
  using enum optim::FloatDType;
  static constexpr std::pair<optim::FloatDType, const char*> table[] = {{fp32, "fp32"},
                                                                        {bf16, "bf16"}};
};
template <>
struct trireme::EnumNames<trireme::ops::Coefficients> {
  using enum ops::Coefficients;
  static constexpr std::pair<ops::Coefficients, const char*> table[] = {
      {newton_schulz, "newton_schulz"}, {polar_express, "polar_express"}};
};
template <>
struct trireme::EnumNames<trireme::optim::OnNonFinite> {
  using enum optim::OnNonFinite;
  static constexpr std::pair<optim::OnNonFinite, const char*> table[] = {{stop, "stop"},
                                                                         {skip, "skip"}};
};
template <>
struct trireme::EnumNames<trireme::optim::DecaySchedule> {
  using enum optim::DecaySchedule;
  static constexpr std::pair<optim::DecaySchedule, const char*> table[] = {
      {constant, "constant"}, {linear, "linear"}, {cosine, "cosine"}, {rate, "rate"}};
};
