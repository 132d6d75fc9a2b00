// SPDX-License-Identifier: Apache-2.0
// The matrix products that a micro-step makes in linear layers, as arithmetic: which shapes, how
// often. What measures or predicts the time of a step starts here. Attention's products are not
// among them: they are causal, small and tiled inside of the op.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "nn/kernels.hpp"
#include "nn/linear_products.hpp"

namespace trireme::nn {

/// One linear layer's three products, `count` times per micro-step.
struct ListedProduct {
  std::string layer;  ///< "qkv", "attention_projection", "fc", "mlp_projection", "head"
  LinearShape products;
  std::int64_t count = 1;
  bool logits = false;  ///< the head: y are logits, of a chunk of rows
  /// The bias has its gradient from the layer that comes next (neighbour.hpp).
  bool bias_by_neighbour = false;

  /// Of one of the three.
  [[nodiscard]] double flops() const {
    return 2.0 * static_cast<double>(products.rows) * static_cast<double>(products.in) *
           static_cast<double>(products.out);
  }
  /// The products alone, without a GELU in them.
  [[nodiscard]] LinearShape plain() const {
    LinearShape plain = products;
    plain.gelu_after = plain.gelu_before = false;
    return plain;
  }
};

/// Layers add themselves; what is listed already is counted.
class ProductList {
 public:
  explicit ProductList(const BatchSize& size) : size_(size) {}

  [[nodiscard]] const BatchSize& size() const { return size_; }
  void add(const ListedProduct& product);
  [[nodiscard]] const std::vector<ListedProduct>& all() const { return all_; }

 private:
  const BatchSize size_;
  std::vector<ListedProduct> all_;
};

}  // namespace trireme::nn
