// SPDX-License-Identifier: Apache-2.0
// Activation functions of MLPs, each a single pass over memory. Arithmetic is fp32.
#pragma once

#include <cstdint>

#include "ops/operation.hpp"

namespace trireme::ops {

/// gelu: the tanh form; Hendrycks, Gimpel 2016, section 2; as GPT-2. squared_relu: max(0, x)²; So et
/// al. 2021, "Primer", section 4. swiglu: silu(gate) · up with silu(z) = z / (1 + e^-z), from twice
/// the channels; Shazeer 2020, "GLU Variants Improve Transformer", eq. 6.
enum class Activation : std::uint8_t { gelu, squared_relu, swiglu };

/// y = f(x).
struct ActivationForward {
  static constexpr const char* name = "activation_forward";
  View y;       ///< of T, as many elements as x; for swiglu [rows, columns]
  ConstView x;  ///< of T; for swiglu [rows, 2, columns]: gate, then up
  Activation function = Activation::gelu;
  std::int64_t columns = 0;  ///< for swiglu only
};
TRIREME_OPERATION(ActivationForward);

/// dx = dy f'(x); for swiglu the gradients of gate and up.
struct ActivationBackward {
  static constexpr const char* name = "activation_backward";
  View dx;       ///< as x of forward; may be dy, except for swiglu
  ConstView dy;  ///< as y of forward
  ConstView x;   ///< as in forward
  Activation function = Activation::gelu;
  std::int64_t columns = 0;  ///< for swiglu only
};
TRIREME_OPERATION(ActivationBackward);

}  // namespace trireme::ops
