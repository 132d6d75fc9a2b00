// SPDX-License-Identifier: Apache-2.0
// AdamW on contiguous ranges: one pass that reads and writes each state once. Source: Loshchilov,
// Hutter 2019, algorithm 2, with bias correction; decay is multiplied by the learning rate.
//
//   g  = norm.scale · gradient;  m = beta1·m + (1-beta1)·g;  v = beta2·v + (1-beta2)·g²
//   master -= learning_rate · ( (m/correction1) / (sqrt(v/correction2) + epsilon)
//                               + weight_decay·master )
//   parameter = master, rounded to the parameter's dtype
//
// If norm.finite is 0 when the operation runs, nothing is written.
#pragma once

#include <cstddef>
#include <span>

#include "ops/operation.hpp"
#include "ops/optimizer/moment_rounding.hpp"
#include "ops/optimizer/norm_and_scale.hpp"

namespace trireme::ops {

/// The numbers of one step, the same for every element, that are known before its gradient is.
struct AdamwStep {
  float learning_rate = 0, beta1 = 0, beta2 = 0, epsilon = 0, weight_decay = 0;
  /// Computed in double by the caller: near 1 the difference of two fp32 numbers has few digits.
  float gain1 = 1, gain2 = 1;              ///< 1 - beta
  float correction1 = 1, correction2 = 1;  ///< 1 - beta^step
};

/// One range of elements. Moments in bf16 are rounded stochastically (moment_rounding.hpp) when
/// they are written; the update uses the unrounded values.
struct Adamw {
  static constexpr const char* name = "adamw";
  View parameter;      ///< [n] of T
  View master;         ///< [n] fp32; may be parameter
  View m, v;           ///< [n], both fp32 or both bf16
  ConstView gradient;  ///< [n] fp32
  AdamwStep step;
  MomentRounding rounding = {};
  const GradientNorm* norm;  ///< memory of the stream's device
};
TRIREME_OPERATION(Adamw);

/// The same for several ranges that do not overlap. Parameters have one dtype, moments one, and all
/// the norm of the first.
void run(std::span<const Adamw> ranges, device::Stream& stream);

namespace cuda {
inline constexpr std::size_t most_adamw_ranges = 30;
/// In one launch. Requires: at most most_adamw_ranges.
template <class T>
void run(const Queue& queue, std::span<const Adamw> ranges);
}  // namespace cuda

}  // namespace trireme::ops
