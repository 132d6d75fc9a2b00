// SPDX-License-Identifier: Apache-2.0
// The activations of MLPs besides GELU (elementwise.hpp), single passes over memory. T is fp32
// or bf16, arithmetic is fp32.
#pragma once

#include <cstdint>

#include "base/view.hpp"
#include "device/device.hpp"

namespace trireme::ops {

/// y = max(0, x)². Source: So et al. 2021, "Primer", section 4.
void squared_relu_forward(View y, ConstView x, device::Stream& stream);
/// dx = dy · 2 max(0, x). `dx` may be `dy`.
void squared_relu_backward(View dx, ConstView dy, ConstView x, device::Stream& stream);

/// y = silu(gate) · up with silu(z) = z / (1 + e^-z). Source: Shazeer 2020, "GLU Variants Improve
/// Transformer", eq. 6. Shapes: y = [rows, columns]; x = [rows, 2, columns], gate and then up.
void swiglu_forward(View y, ConstView x, std::int64_t columns, device::Stream& stream);
/// dx = [rows, 2, columns], from dy = [rows, columns].
void swiglu_backward(
    View dx, ConstView dy, ConstView x, std::int64_t columns, device::Stream& stream);

}  // namespace trireme::ops
