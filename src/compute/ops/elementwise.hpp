// SPDX-License-Identifier: Apache-2.0
// Single passes over memory: GELU, dropout backwards, bias gradients, casts. T is fp32 or
// bf16, arithmetic is fp32.
#pragma once

#include "base/view.hpp"
#include "device/device.hpp"

#include "ops/dropout.hpp"

namespace trireme::ops {

/// y = gelu(x), the tanh form. Source: Hendrycks, Gimpel 2016, section 2; as GPT-2.
void gelu_forward(View y, ConstView x, device::Stream& stream);
/// dx = dy · gelu'(x). `dx` may be `dy`.
void gelu_backward(View dx, ConstView dy, ConstView x, device::Stream& stream);

/// The gradient of a branch that was added after dropout (layer_norm.hpp): dbranch = dy times the
/// same mask. Shapes: [samples, elements_per_sample]. Without dropout it is a copy.
void dropout_backward(View dbranch,
                      ConstView dy,
                      std::int64_t elements_per_sample,
                      const Dropout& dropout,
                      device::Stream& stream);

/// db[n] += sum over rows of dy[row, n]. Shapes: db = [columns] fp32, dy = [rows, columns]. Rows
/// are added in a fixed order.
void bias_backward(View db, ConstView dy, device::Stream& stream);

/// sum += term. Shapes: fp32, of equal lengths; `term` may be `sum`.
void add(View sum, ConstView term, device::Stream& stream);

/// to = from, converted (fp32 -> bf16 rounds to nearest even).
void cast(View to, ConstView from, device::Stream& stream);

}  // namespace trireme::ops
