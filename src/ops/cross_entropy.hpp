// SPDX-License-Identifier: Apache-2.0
// Softmax and cross-entropy in one pass over the logits.
//
// Shapes: logits = [rows, V] of T; targets = [rows] int32, a negative target is ignored (loss 0,
// gradient 0); losses = [rows] fp32.
#pragma once

#include "base/view.hpp"

#include "device/device.hpp"

namespace trireme::ops {

/// losses[row] = log(sum exp logits[row]) - logits[row, target].
void cross_entropy_forward(View losses,
                           ConstView logits,
                           ConstView targets,
                           device::Stream& stream);

/// As forward, to the same bits, and d_logits = scale · (softmax(logits) - onehot(target)). Shapes:
/// d_logits as logits, of T, in which case it may be `logits`, or of bf16, rounded once.
void cross_entropy_forward_backward(View losses,
                                    View d_logits,
                                    ConstView logits,
                                    ConstView targets,
                                    float scale,
                                    device::Stream& stream);

}  // namespace trireme::ops
