// SPDX-License-Identifier: Apache-2.0
// The result of a sweep of the learning rate: losses of steps whose rates grow by one factor, made
// smooth, and the rates that they suggest. Pure arithmetic.
//
// The smoothed loss at a step is the value, and its slope the slope, of the straight line that fits
// the losses of the `window` steps before and after it best, over the logarithm of the rate. A
// moving average of what came before would lag, and with rates that grow by the step a lag is a
// factor.
//
//   steepest  the rate where the smoothed loss falls fastest, up to its minimum
//   diverges  the rate in the middle of the first `window` steps whose mean loss is above the
//             smallest such mean before them times `multiple`; else that of a step whose gradient
//             was not finite. The sweep ends there
//   suggested the smaller one of `steepest` and a tenth of `diverges`; the first where the loss
//             never diverged; none where it never fell
//
// Sources of the range test: Smith, "Cyclical learning rates for training neural networks", arXiv
// 1506.01186 (2015), section 3.3; Smith, "A disciplined approach to neural network
// hyper-parameters", arXiv 1803.09820 (2018). That a tenth of the rate that diverges is safe is a
// rule of thumb.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace trireme::tune {

/// What to sweep, and when to stop.
struct SweepRequest {
  double low = 1e-6, high = 1.0;  ///< rates of the first and the last step
  std::int64_t steps = 100;
  double multiple = 1.5;  ///< of the smallest loss: above it the sweep ends

  /// Steps on each side of a point that smooth it.
  [[nodiscard]] std::int64_t window() const { return std::max<std::int64_t>(2, steps / 20); }
};

struct RatePoint {
  double rate = 0, loss = 0;  ///< of one step: before its update
  double smoothed = 0;
  double slope = 0;  ///< of the smoothed loss over the natural logarithm of the rate
};

struct RateCurve {
  std::vector<RatePoint> points;
  /// Why before the last step, in letters, digits and plain punctuation; empty: it was not.
  std::string ended;
  std::optional<double> steepest, diverges, suggested;
};

/// Of steps with `rates` and `losses`, equally many and all finite. `not_finite`: the rate of a
/// step after them whose gradient was not.
RateCurve rate_curve(std::span<const double> rates,
                     std::span<const double> losses,
                     const SweepRequest& request,
                     std::optional<double> not_finite = {});

/// Watches the losses of a sweep, in order.
class Divergence {
 public:
  explicit Divergence(const SweepRequest& request) : request_(request) {}
  /// Takes the loss of the next step. Whether the last `window` of them diverge.
  bool add(double loss);

 private:
  const SweepRequest request_;
  std::vector<double> losses_;
  double lowest_ = std::numeric_limits<double>::infinity();  // mean of `window` losses in a row
};

/// A line for some twenty of the points, and what they suggest.
std::string rate_table(const RateCurve& curve);
/// {"filetype": "trireme-rates", "version": [1, 0], "rate": […], "loss": […], …}; null: there is
/// none.
std::string rate_json(const RateCurve& curve);

}  // namespace trireme::tune
