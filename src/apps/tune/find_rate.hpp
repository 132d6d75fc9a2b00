// SPDX-License-Identifier: Apache-2.0
// `trireme find-rate DECK`: a short training from the deck's initial parameters whose learning rate
// grows by the same factor with every step, and what its losses suggest (rate_curve.hpp).
//
// 1. Batches, model, data, clipping and weight decay are the deck's; its schedule, evaluation,
//    samples and checkpoints are left out. Groups with a rate of their own keep its proportion to
//    the deck's rate.
// 2. Nothing is written: no run directory is made or looked at. Text is encoded into a temporary
//    token cache, unless data.cache names a place for one.
// 3. Every rank sees the same losses and ends at the same step. They have the same bits wherever a
//    run's losses have: with reduction: tree on any number of ranks.
#pragma once

#include "base/log.hpp"

#include "comm/control/world.hpp"

#include "session/job.hpp"

#include "tune/rate_curve.hpp"

namespace trireme::tune {

/// Collective. Throws UserError when the request is no range, when a group's rate has no proportion
/// to a rate of 0, or when the first step already has a gradient that is not finite.
RateCurve find_rate(const session::Job& job,
                    comm::World& world,
                    Log& log,
                    const SweepRequest& request);

}  // namespace trireme::tune
