// SPDX-License-Identifier: Apache-2.0
// The elementwise halves of Muon, before and after the orthogonalization of whole matrices
// (ops/optimizer/orthogonalize.hpp).
//
//   muon_direction   g = norm.scale · gradient;  m = momentum·m + (1-momentum)·g
//                    gradient = (1-momentum)·g + momentum·m, or m without Nesterov
//   muon_update      master -= learning_rate · (direction + weight_decay·master)
//                    parameter = master, rounded to the parameter's dtype
//
// Where norm.finite is 0 when the stream comes to it, nothing is written.
// Source: Jordan et al., "Muon: an optimizer for hidden layers in neural networks", 2024, with the
// momentum as a mean; the decay of Liu et al., "Muon is scalable for LLM training", arXiv
// 2502.16982, section 2.2.
//
// Shapes: all [n], fp32; parameter and m fp32 or bf16. In bf16 m is rounded at random as a first
// moment is (moment_rounding.hpp), and the direction takes it before that. In fp32 runs master and
// parameter may be the same view. `norm` is memory of the stream's device.
#pragma once

#include "base/view.hpp"
#include "device/device.hpp"

#include "ops/optimizer/gradient_norm.hpp"
#include "ops/optimizer/moment_rounding.hpp"
#include "ops/optimizer/muon_step.hpp"

namespace trireme::ops {

void muon_direction(View gradient,
                    View m,
                    const MuonStep& step,
                    const MomentRounding& rounding,
                    const GradientNorm& norm,
                    device::Stream& stream);

void muon_update(View parameter,
                 View master,
                 ConstView direction,
                 const MuonStep& step,
                 const GradientNorm& norm,
                 device::Stream& stream);

}  // namespace trireme::ops
