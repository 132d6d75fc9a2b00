// SPDX-License-Identifier: Apache-2.0
// The matrix products of a micro-step's linear layers, by shape and count, for measuring or
// predicting the time of a step. Attention's products are not included: they are tiled inside the
// op.
#pragma once

#include <cstdint>
#include <string>

#include "nn/linear_products.hpp"

namespace trireme::nn {

/// One linear layer's three products, `count` times per micro-step.
struct ListedProduct {
  std::string layer;  ///< "qkv", "attention_projection", "fc", "mlp_projection", "head"
  LinearShape products;
  std::int64_t count = 1;
  bool logits = false;  ///< the head: y are logits, of a chunk of rows
  /// The next layer computes the gradient of the bias (layer_norm.hpp).
  bool bias_is_fused = false;

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
