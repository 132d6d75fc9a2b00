// SPDX-License-Identifier: Apache-2.0
// Learning rate, weight decay and momentum as pure functions of the step, so that a run which
// resumes needs no state for them. Steps count from 1; `total_steps` is the last one.
//
//   warm-up   step <= warmup_steps: peak · step / warmup_steps
//   constant  the peak until the end
//   linear    in a straight line from the peak to final_fraction · peak at the last step
//   cosine    half a cosine between the same values. Source: Loshchilov, Hutter, SGDR, 2017, eq. 5
//   wsd       the peak, then a decay over the last decay_fraction of all steps, rounded down. At
//             the fraction x of the decay, linear is 1 - x, one_minus_sqrt is 1 - sqrt(x). Sources:
//             Hu et al., MiniCPM, 2024, section 4; Haegele et al., "Scaling laws and
//             compute-optimal training beyond fixed training durations", 2024, section 3
//   sweep     (sweep_from > 0) peak · sweep_from ^ (1 - (step - 1) / (total_steps - 1)). Source:
//             Smith, "Cyclical learning rates", 2017, section 3.3, with equal factors
//
// The peak is at step max(warmup_steps, 1), where the decay of linear and cosine begins; wsd
// begins its decay there if warm-up ends later than the decay should begin.
//
// Weight decay falls from its full value at step 1 to 0 at the last step, in a straight line or by
// half a cosine, or is proportional to the learning rate over its peak. It is decoupled: a step
// subtracts rate · decay · weight, so with weight_decay_schedule: rate this term falls with the
// square of the rate. Source of a decay that ends at 0: nanochat, scripts/base_train.py, with Muon.
//
// Muon's momentum changes linearly from momentum_start at step 1 to its final value at step
// momentum_warmup_steps + 1 (Jordan et al., modded-nanogpt, 2024: 0.85 to 0.95 in 300 steps).
#pragma once

#include <cstdint>

#include "optim/config.hpp"

namespace trireme::optim {

/// Requires: step >= 1, total_steps >= 1. After total_steps it is constant.
double learning_rate(const OptimizerConfig& config, std::int64_t step, std::int64_t total_steps);

/// The same for optimizer.weight_decay.
double weight_decay(const OptimizerConfig& config, std::int64_t step, std::int64_t total_steps);

/// Requires: step >= 1.
double momentum(const MuonConfig& config, std::int64_t step);

/// The last step before the decay; for `constant`, of the schedule. Requires: total_steps >= 1.
std::int64_t last_peak_step(const ScheduleConfig& schedule, std::int64_t total_steps);

}  // namespace trireme::optim
