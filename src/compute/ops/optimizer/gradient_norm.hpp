// SPDX-License-Identifier: Apache-2.0
// Norm, clip factor and finiteness of a step's gradient, from its squares summed over all ranks.
// They are computed and kept on the device, where AdamW reads them, so that no host waits for them
// inside a step.
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
