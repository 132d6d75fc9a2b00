// SPDX-License-Identifier: Apache-2.0
// The deck section `optimizer`: AdamW or Muon, and parameter groups.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "base/key.hpp"

#include "ops/optimizer/muon.hpp"
#include "ops/optimizer/orthogonalize_options.hpp"

#include "reduce/config.hpp"

#include "optim/schedule_config.hpp"

namespace trireme::optim {

/// muon: hidden matrices use orthogonalized momentum, all other parameters AdamW.
enum class Kind : std::uint8_t { adamw, muon };

/// How weight decay changes over a run.
enum class DecaySchedule : std::uint8_t { constant, linear, cosine, rate };

/// Type of moments, where bf16 uses stochastic rounding (ops/optimizer/moment_rounding.hpp), and of
/// Muon's products.
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

/// Muon's keys, in addition to those that it shares with AdamW.
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

/// Local steps: each replica makes several updates with its own gradients before replicas are
/// averaged (local_steps.hpp).
struct OuterConfig {
  std::int64_t local_steps = 1;
  double rate = 0.7;
  double momentum = 0.9;
  reduce::GradientDType dtype = reduce::GradientDType::fp32;

  [[nodiscard]] bool on() const { return local_steps > 1; }
  /// Whether changes are sent in blocks of bytes.
  [[nodiscard]] bool encodes() const { return reduce::dtype_of(dtype) == DType::u8; }
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
  OuterConfig outer;
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
    {.help = "Names of the parameters: * matches any text, ? any character.", .required = true});
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
    {.help = "Momentum: decay of the running mean of gradients.",
     .min = 0.0,
     .max = 1.0,
     .below_max = true});
  v("momentum_warmup_steps", c.momentum_warmup_steps,
    {.unit = "steps",
     .help = "Number of steps in which the momentum changes linearly from momentum_start to "
             "momentum. 0: no warm-up.",
     .min = 0,
     .max = 1'000'000'000,
     .change = Change::asked});
  v("momentum_start", c.momentum_start,
    {.help = "Momentum at the first step, with momentum_warmup_steps.",
     .min = 0.0,
     .max = 1.0,
     .below_max = true,
     .change = Change::asked});
  v("nesterov", c.nesterov, {.help = "Use Nesterov momentum.", .change = Change::asked});
  v("steps", c.steps,
    {.help = "Number of iterations of the orthogonalization, with three matrix products each.",
     .min = 1,
     .max = 100,
     .change = Change::asked});
  v("coefficients", c.coefficients,
    {.help = "Polynomials of the orthogonalization. newton_schulz: the same in all iterations. "
             "polar_express: a different one in each of the first five.",
     .change = Change::asked});
  v("product_dtype", c.product_dtype,
    {.help = "Type of the matrix products of the orthogonalization. bf16 is faster on hardware "
             "with bf16 products, and needs half of the scratch memory.",
     .change = Change::asked});
  v("update_rms", c.update_rms,
    {.help = "Root mean square of the elements of an update, divided by the learning rate. 0.2 is "
             "about that of AdamW, whose learning rate and weight decay can then be reused.",
     .min = 0.0,
     .max = 100.0,
     .above_min = true});
}

template <class V>
void describe(V& v, OuterConfig& c) {
  v("local_steps", c.local_steps,
    {.unit = "steps",
     .help = "Number of updates in each step of the run that every replica (parallel.replicate) "
             "makes without the others, each with an equal part of its sequences; then the weights "
             "are averaged over the replicas (LocalSGD, DiLoCo). More: gradients are not sent "
             "between replicas, and the loss may fall more slowly. Raise batch.sequences with it. "
             "1: off.",
     .min = 1,
     .max = 1 << 24,
     .change = Change::never});
  v("rate", c.rate,
    {.help = "Rate of the outer update: by how much of the replicas' mean change the weights move. "
             "1, with momentum 0: to the mean (LocalSGD).",
     .min = 0.0,
     .max = 2.0,
     .above_min = true});
  v("momentum", c.momentum,
    {.help = "Nesterov momentum of the outer update.", .min = 0.0, .max = 1.0, .below_max = true});
  v("dtype", c.dtype,
    {.help = "Type in which replicas send the change of their weights, as for "
             "parallel.gradient_dtype: bf16 sends half the bytes of fp32, int8 and fp8 a quarter. "
             "From int8 on, what was not sent is added to the next change, which needs 4 to 6 "
             "bytes for each weight that a rank updates. A run that resumes with one replica, or "
             "with fp32 or bf16, drops that part with a warning."});
}

template <class V>
void describe(V& v, OptimizerConfig& c) {
  v("kind", c.kind,
    {.help = "Optimizer. muon: orthogonalized momentum for the weights of linear layers in blocks; "
             "AdamW for embeddings, head, gains and biases.",
     .change = Change::never});
  v("learning_rate", c.learning_rate,
    {.help = "Peak learning rate after warm-up.", .min = 0.0, .max = 1.0});
  v.section("schedule", c.schedule);
  v("beta1", c.beta1,
    {.help = "Decay rate of the first moment.", .min = 0.0, .max = 1.0, .below_max = true});
  v("beta2", c.beta2,
    {.help = "Decay rate of the second moment.", .min = 0.0, .max = 1.0, .below_max = true});
  v("epsilon", c.epsilon,
    {.help = "Added to the square root of the second moment.",
     .min = 0.0,
     .max = 1.0,
     .above_min = true});
  v("moment_dtype", c.moment_dtype,
    {.help = "Type in which moments are stored. bf16 saves 4 bytes per element and uses stochastic "
             "rounding, whose random bits depend only on run.seed, step and element.",
     .change = Change::asked});
  v.section("muon", c.muon);
  v.section("outer", c.outer);
  v("weight_decay", c.weight_decay,
    {.help = "Decoupled weight decay of matrices. Biases and gains have none.",
     .min = 0.0,
     .max = 10.0});
  v("weight_decay_schedule", c.weight_decay_schedule,
    {.help = "How weight_decay, also that of groups, changes over the run. constant: not. linear, "
             "cosine: falls to 0 at the schedule's last step. rate: proportional to the learning "
             "rate, including its warm-up.",
     .change = Change::asked});
  v.list(
      "groups", c.groups,
      {.help = "Rules that give some parameters another learning rate or weight decay. The first "
               "rule that matches the name applies. `trireme plan` prints the groups."});
  v("clip_norm", c.clip_norm,
    {.help = "Maximum L2 norm of the gradient; larger gradients are scaled down. 0: no clipping.",
     .min = 0.0});
  v("on_non_finite", c.on_non_finite,
    {.help =
         "What to do if the gradient of a step is NaN or infinite; nothing is updated in either "
         "case. stop: end the run. skip: record the step in /skipped and continue with the next "
         "step, data and learning rate."});
  v("max_skipped_steps", c.max_skipped_steps,
    {.unit = "steps",
     .help =
         "With on_non_finite: skip, maximum number of consecutive skipped steps; one more stops "
         "the run.",
     .min = 1});
}

}  // namespace trireme::optim
