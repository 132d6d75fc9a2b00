// SPDX-License-Identifier: Apache-2.0
// The three matrix products of a linear layer, y = x · Wᵀ + b, shared by layers of equal shape.
//
// Shapes: x, dx = [rows, in], y, dy = [rows, out], weight = [out, in], bias = [out]. Gradients of
// weights are fp32 and added to. Other dtypes are `dtype`, except y, which may be fp32 (logits).
//
// On a CPU a row of y does not depend on the others (ops/matmul.hpp); on a GPU, up to rounding.
//
// A GELU after or before the layer is computed within the product if the device can
// (ops::Epilogue), else in a separate pass. `z` = [rows, out] or [rows, in] is the input of the
// GELU, which backward needs.
//
// ListedProduct is for measuring or predicting the time of a step, by shape and count. Attention's
// own products are not listed: they are tiled inside the op.
#pragma once

#include <cstdint>
#include <string>

#include "ops/matmul.hpp"

namespace trireme::nn {

struct LinearShape {
  std::int64_t rows = 0, in = 0, out = 0;
  bool bias = false;
  DType dtype = DType::f32;
  DType y = DType::f32;
  bool gelu_after = false;   ///< y = gelu(z), z = x · Wᵀ + b
  bool gelu_before = false;  ///< x = gelu(z)

  /// y = x · Wᵀ + b.
  [[nodiscard]] ops::MatmulShape forward() const {
    return {.m = rows,
            .n = out,
            .k = in,
            .b_transposed = true,
            .a = dtype,
            .b = dtype,
            .c = y,
            .bias = bias,
            .epilogue = gelu_after ? ops::Epilogue::gelu : ops::Epilogue::none};
  }
  /// dx = dy · W, or dz = (dy · W) · gelu'(z).
  [[nodiscard]] ops::MatmulShape input_gradient() const {
    return {.m = rows,
            .n = in,
            .k = out,
            .a = dtype,
            .b = dtype,
            .c = dtype,
            .epilogue = gelu_before ? ops::Epilogue::gelu_backward : ops::Epilogue::none};
  }
  /// dW += dyᵀ · x; as row sums, db += the sum of the rows of dy.
  [[nodiscard]] ops::MatmulShape weight_gradient() const {
    return {.m = out,
            .n = in,
            .k = rows,
            .a_transposed = true,
            .a = dtype,
            .b = dtype,
            .c = DType::f32,
            .accumulate = true,
            .row_sums = bias};
  }
  bool operator==(const LinearShape&) const = default;
};

/// Products of one shape. Null: not prepared, because only forward is needed.
struct LinearProducts {
  const ops::Matmul* forward = nullptr;
  const ops::Matmul* input_gradient = nullptr;
  const ops::Matmul* weight_gradient = nullptr;
};

/// One linear layer's three products, `count` times per micro-step.
struct ListedProduct {
  std::string layer;  ///< "qkv", "attention_projection", "fc", "mlp_projection", "head"
  LinearShape products;
  std::int64_t count = 1;
  bool logits = false;         ///< the head: y are logits, of a chunk of rows
  bool bias_is_fused = false;  ///< the next layer computes the bias's gradient (layer_norm.hpp)

  /// FLOP of one of the three products.
  [[nodiscard]] double flops() const {
    return 2.0 * static_cast<double>(products.rows) * static_cast<double>(products.in) *
           static_cast<double>(products.out);
  }
  /// The products without a fused GELU.
  [[nodiscard]] LinearShape plain() const {
    LinearShape plain = products;
    plain.gelu_after = plain.gelu_before = false;
    return plain;
  }
};

}  // namespace trireme::nn
