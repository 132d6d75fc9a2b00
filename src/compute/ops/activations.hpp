// SPDX-License-Identifier: Apache-2.0
// The activations of MLPs, single passes over memory. Arithmetic is fp32. Backward reads x, the
// input of forward.
#pragma once

#include <cstdint>

#include "ops/operation.hpp"

namespace trireme::ops {

/// y = gelu(x), the tanh form. Source: Hendrycks, Gimpel 2016, section 2; as GPT-2.
struct GeluForward {
  static constexpr const char* name = "gelu_forward";
  View y;       ///< of T, as many elements as x
  ConstView x;  ///< of T
};
TRIREME_OPERATION(GeluForward);

/// dx = dy · gelu'(x).
struct GeluBackward {
  static constexpr const char* name = "gelu_backward";
  View dx;       ///< of T, as many elements as x; may be dy
  ConstView dy;  ///< the same
  ConstView x;   ///< of T: what went into the GELU
};
TRIREME_OPERATION(GeluBackward);

/// y = max(0, x)². Source: So et al. 2021, "Primer", section 4.
struct SquaredReluForward {
  static constexpr const char* name = "squared_relu_forward";
  View y;       ///< of T, as many elements as x
  ConstView x;  ///< of T
};
TRIREME_OPERATION(SquaredReluForward);

/// dx = dy · 2 max(0, x).
struct SquaredReluBackward {
  static constexpr const char* name = "squared_relu_backward";
  View dx;       ///< of T, as many elements as x; may be dy
  ConstView dy;  ///< the same
  ConstView x;   ///< of T
};
TRIREME_OPERATION(SquaredReluBackward);

/// y = silu(gate) · up with silu(z) = z / (1 + e^-z). Source: Shazeer 2020, "GLU Variants Improve
/// Transformer", eq. 6.
struct SwigluForward {
  static constexpr const char* name = "swiglu_forward";
  View y;       ///< [rows, columns] of T
  ConstView x;  ///< [rows, 2, columns] of T, gate and then up
  std::int64_t columns;
};
TRIREME_OPERATION(SwigluForward);

struct SwigluBackward {
  static constexpr const char* name = "swiglu_backward";
  View dx;       ///< [rows, 2, columns] of T
  ConstView dy;  ///< [rows, columns] of T
  ConstView x;   ///< [rows, 2, columns] of T
  std::int64_t columns;
};
TRIREME_OPERATION(SwigluBackward);

}  // namespace trireme::ops
