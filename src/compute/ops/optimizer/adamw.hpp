// SPDX-License-Identifier: Apache-2.0
// AdamW on contiguous ranges: one pass that reads and writes each state once. A GPU takes up to 30
// ranges in one launch.
// Source: Loshchilov, Hutter 2019, algorithm 2, with bias correction; decay is multiplied by the
// learning rate.
//
//   g  = norm.scale · gradient;  m = beta1·m + (1-beta1)·g;  v = beta2·v + (1-beta2)·g²
//   master -= learning_rate · ( (m/correction1) / (sqrt(v/correction2) + epsilon)
//                               + weight_decay·master )
//   parameter = master, rounded to the parameter's dtype
//
// Where norm.finite is 0 when the stream comes to it, nothing is written.
//
// Shapes: all [n]; master and gradient fp32; parameter fp32 or bf16; m and v both fp32 or both
// bf16. In bf16 they are rounded at random (moment_rounding.hpp) where they are written; the update
// takes them before that. In fp32 runs master and parameter may be the same view. `norm` is memory
// of the stream's device.
#pragma once

#include <span>

#include "base/view.hpp"
#include "device/device.hpp"

#include "ops/optimizer/adamw_step.hpp"
#include "ops/optimizer/gradient_norm.hpp"
#include "ops/optimizer/moment_rounding.hpp"

namespace trireme::ops {

struct AdamwPiece {
  View parameter, master, m, v;
  ConstView gradient;
  AdamwStep step{};
  MomentRounding rounding{};
};

/// Of all pieces, which do not overlap; parameters have one dtype, moments one.
void adamw(std::span<const AdamwPiece> pieces, const GradientNorm& norm, device::Stream& stream);

}  // namespace trireme::ops
