// SPDX-License-Identifier: Apache-2.0
// Softmax and cross-entropy in one pass over the logits, which may be capped on the way
// (loss_terms.hpp): what is capped is never stored.
//
// Shapes: logits = [rows, V] of T; targets = [rows] int32, a negative target is ignored (loss 0,
// gradient 0); losses = [rows] fp32. Below, z are the logits after the cap: z = cap(logits).
#pragma once

#include "base/view.hpp"
#include "device/device.hpp"

#include "ops/loss_terms.hpp"

namespace trireme::ops {

/// losses[row] = log(sum exp z[row]) - z[row, target]: the cross-entropy alone, without a z-loss.
void cross_entropy_forward(View losses,
                           ConstView logits,
                           ConstView targets,
                           const LossTerms& terms,
                           device::Stream& stream);

/// As forward, to the same bits, and d_logits = scale times the gradient of the loss plus
/// k · log²(sum exp z):
/// scale · (softmax(z) · (1 + 2 k log(sum exp z)) - onehot(target)) · (1 - (z / c)²), the last
/// factor where there is a cap. Shapes: d_logits as logits, of T, in which case it may be `logits`,
/// or of bf16, rounded once.
void cross_entropy_forward_backward(View losses,
                                    View d_logits,
                                    ConstView logits,
                                    ConstView targets,
                                    const LossTerms& terms,
                                    float scale,
                                    device::Stream& stream);

/// logits = cap(logits), fp32, in place, as the loss sees them. Without a cap nothing is done.
void cap_logits(View logits, const LossTerms& terms, device::Stream& stream);

}  // namespace trireme::ops
