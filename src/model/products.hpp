// SPDX-License-Identifier: Apache-2.0
// The matrix products that a micro-step makes in linear layers, as arithmetic: which shapes, how
// often. What measures or predicts the time of a step starts here. Attention's products are not
// among them: they are causal, small and tiled inside of the op.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/activations.hpp"
#include "model/config.hpp"
#include "model/linear.hpp"

namespace trireme::model {

/// One linear layer's three products, over `rows` rows, `count` times per micro-step.
struct LinearProducts {
  std::string layer;  ///< "qkv", "attention_projection", "fc", "mlp_projection", "head"
  std::int64_t rows = 0, in = 0, out = 0;
  std::int64_t piece_rows = 0;  ///< of forward
  std::int64_t count = 0;
  bool bias = false;
  DType y = DType::f32;  ///< of the forward result
  // As in LinearShape.
  bool gelu_behind = false, gelu_before = false;

  /// Of one of the three.
  [[nodiscard]] double flops() const {
    return 2.0 * static_cast<double>(rows) * static_cast<double>(in) * static_cast<double>(out);
  }
  /// Of the layer that makes them, in `dtype`.
  [[nodiscard]] LinearShape shape(DType dtype) const {
    return {.rows = rows,
            .in = in,
            .out = out,
            .piece_rows = piece_rows,
            .bias = bias,
            .dtype = dtype,
            .y = y,
            .gelu_behind = gelu_behind,
            .gelu_before = gelu_before};
  }
  /// The products alone, without a GELU in them.
  [[nodiscard]] LinearShape plain_shape(DType dtype) const {
    LinearShape plain = shape(dtype);
    plain.gelu_behind = plain.gelu_before = false;
    return plain;
  }
};

/// Of a micro-step of `micro_sequences` in `dtype` on such a device; the head by its chunks.
std::vector<LinearProducts> linear_products(const GptShape& shape,
                                            DType dtype,
                                            std::int64_t micro_sequences,
                                            device::Kind kind);

}  // namespace trireme::model
