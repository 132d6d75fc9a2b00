// SPDX-License-Identifier: Apache-2.0
// `trireme find-rate DECK`: a short training from the deck's initial parameters with a learning
// rate that grows by a constant factor per step, and a suggestion from its losses.
//
// 1. Batches, model, data, clipping and weight decay are the deck's; its schedule, evaluation,
//    samples and checkpoints are not used. Groups with their own rate keep its ratio to the deck's
//    rate.
// 2. No run directory is used. Text is encoded into a temporary token cache, unless data.cache is
//    given.
// 3. Every rank gets the same losses and ends at the same step. Losses are as reproducible as in a
//    run; with reduction: tree they have the same bits on any number of ranks.
//
// Loss, slope and suggestion: docs/design/apps.md, "Search for a learning rate". A moving average
// of earlier losses in place of the line would lag, and shift the rates by a factor. The run
// diverges at the rate in the middle of the first `window` steps whose mean loss is too large, and
// the sweep ends there. Without that, `steepest` is suggested; nothing if the loss never decreases.
// A tenth of the diverging rate is a rule of thumb.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/log.hpp"

#include "comm/control/world.hpp"

#include "session/job.hpp"

namespace trireme::tune {

struct SweepRequest {
  double low = 1e-6, high = 1.0;  ///< rates of the first and the last step
  std::int64_t steps = 100;
  double multiple = 1.5;  ///< the sweep ends above this multiple of the smallest loss

  /// Steps on each side of a point used for smoothing.
  [[nodiscard]] std::int64_t window() const { return std::max<std::int64_t>(2, steps / 20); }
};

struct RatePoint {
  double rate = 0, loss = 0;  ///< of one step, before its update
  double smoothed = 0;
  double slope = 0;  ///< of the smoothed loss over the natural logarithm of the rate
};

struct RateCurve {
  std::vector<RatePoint> points;
  std::string ended;  ///< why the sweep ended before the last step; empty if it did not
  std::optional<double> steepest, diverges, suggested;
};

/// The curve of steps with `rates` and `losses`, equal in number and finite. `not_finite`: the rate
/// of the next step, if its gradient was not finite.
RateCurve rate_curve(std::span<const double> rates,
                     std::span<const double> losses,
                     const SweepRequest& request,
                     std::optional<double> not_finite = {});

/// Watches the losses of a sweep, in order.
class Divergence {
 public:
  explicit Divergence(const SweepRequest& request) : request_(request) {}
  /// Adds the loss of the next step. Returns whether the last `window` losses diverge.
  bool add(double loss);

 private:
  const SweepRequest request_;
  std::vector<double> losses_;
  double lowest_ = std::numeric_limits<double>::infinity();  // mean of `window` losses in a row
};

/// A table of about twenty of the points, and the suggested rate.
std::string rate_table(const RateCurve& curve);
/// {"filetype": "trireme-rates", "version": [1, 0], "rate": […], "loss": […], …}; missing values
/// are null.
std::string rate_json(const RateCurve& curve);

/// Collective. Throws UserError if the range is invalid, if a group has its own rate and the deck's
/// is 0, or if the gradient of the first step is not finite.
RateCurve find_rate(const session::Job& job,
                    comm::World& world,
                    Log& log,
                    const SweepRequest& request);

}  // namespace trireme::tune
