// SPDX-License-Identifier: Apache-2.0
// `trireme find-rate DECK`: a short training from the deck's initial parameters with a learning
// rate that grows by a constant factor per step, and a suggestion from its losses (rate_curve.hpp).
//
// 1. Batches, model, data, clipping and weight decay are the deck's; its schedule, evaluation,
//    samples and checkpoints are not used. Groups with their own rate keep its ratio to the deck's
//    rate.
// 2. No run directory is used. Text is encoded into a temporary token cache, unless data.cache is
//    given.
// 3. Every rank gets the same losses and ends at the same step. Losses are as reproducible as in a
//    run; with reduction: tree they have the same bits on any number of ranks.
#pragma once

#include "base/log.hpp"

#include "comm/control/world.hpp"

#include "session/job.hpp"

#include "tune/rate_curve.hpp"

namespace trireme::tune {

/// Collective. Throws UserError if the range is invalid, if a group has its own rate and the deck's
/// is 0, or if the gradient of the first step is not finite.
RateCurve find_rate(const session::Job& job,
                    comm::World& world,
                    Log& log,
                    const SweepRequest& request);

}  // namespace trireme::tune
