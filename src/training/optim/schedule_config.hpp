// SPDX-License-Identifier: Apache-2.0
// The deck section `optimizer.schedule`: the learning rate as a function of the step.
#pragma once

#include <cstdint>

#include "base/key.hpp"

namespace trireme::optim {

/// Shape after the warm-up; wsd: warm-up, stable, decay.
enum class Schedule : std::uint8_t { constant, linear, cosine, wsd };

/// Shape of the decay of wsd.
enum class DecayShape : std::uint8_t { linear, one_minus_sqrt };

/// A schedule is a fraction of the peak, which is optimizer.learning_rate or that of a parameter's
/// group: 0 to 1 over the warm-up, then down to final_fraction at the schedule's last step, and
/// constant after it. Steps are counted from 1. Formulas: schedule.hpp.
struct ScheduleConfig {
  Schedule kind = Schedule::cosine;
  std::int64_t warmup_steps = 0;
  double final_fraction = 0.1;  ///< not for `constant`
  double decay_fraction = 0.2;  ///< of all steps; for wsd only
  DecayShape decay_shape = DecayShape::linear;
  Or<std::int64_t> steps = {};
  /// Above 0, it replaces the schedule: the rate grows by the same factor in every step, from this
  /// fraction of the peak at the first step to the peak at the last. Not a key of the deck; only
  /// the search for a learning rate sets it.
  double sweep_from = 0;
};

template <class V>
void describe(V& v, ScheduleConfig& c) {
  v("kind", c.kind,
    {.help = "Shape of the schedule after the warm-up. wsd: constant, then a decay at the end.",
     .change = Change::asked});
  v("warmup_steps", c.warmup_steps,
    {.unit = "steps",
     .help = "Number of steps of linear warm-up from 0.",
     .min = 0,
     .change = Change::asked});
  v("final_fraction", c.final_fraction,
    {.unit = "fraction",
     .help = "Learning rate at the last step, as a fraction of its peak.",
     .min = 0.0,
     .max = 1.0,
     .change = Change::asked});
  v("decay_fraction", c.decay_fraction,
    {.unit = "fraction",
     .help = "Fraction of all steps in which wsd decays.",
     .min = 0.0,
     .max = 1.0,
     .change = Change::asked});
  v("decay_shape", c.decay_shape,
    {.help =
         "Shape of the decay of wsd. linear: a straight line. one_minus_sqrt: 1 - sqrt(x) at the "
         "fraction x of the decay, which falls faster at first.",
     .change = Change::asked});
  v("steps", c.steps,
    {.unit = "steps",
     .help = "Last step of the schedule; after it the learning rate is constant. auto: run.steps. "
             "Set it if you may raise run.steps later, since with auto the rate would then jump.",
     .min = 1,
     .max = 1'000'000'000});
}

}  // namespace trireme::optim
