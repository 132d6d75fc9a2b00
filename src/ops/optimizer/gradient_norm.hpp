// SPDX-License-Identifier: Apache-2.0
// What a step knows of its gradient only when the squares are summed over all ranks. It is computed
// and kept on the device, where AdamW reads it, so that no host waits for it inside a step.
#pragma once

#include "base/view.hpp"

#include "device/device.hpp"

#include "ops/optimizer/norm_and_scale.hpp"

namespace trireme::ops {

/// Shapes: squares [1] fp64, the sum of the squares of the gradient. `norm` is memory of the
/// stream's device.
void gradient_norm(GradientNorm& norm,
                   ConstView squares,
                   const Clipping& clipping,
                   device::Stream& stream);

}  // namespace trireme::ops
