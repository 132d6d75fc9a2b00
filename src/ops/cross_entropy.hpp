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

/// As forward, and overwrites `logits` with scale · (softmax(logits) - onehot(target)).
void cross_entropy_forward_backward(
    View losses, View logits, ConstView targets, float scale, device::Stream& stream);

}  // namespace trireme::ops
