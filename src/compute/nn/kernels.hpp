// SPDX-License-Identifier: Apache-2.0
// Owns a model's prepared operations, products and attentions, each for one shape and device. Equal
// shapes share one, so all blocks use the same. Layers request theirs once per batch size
// (prepare), before the first call of that size, and keep the pointers, which stay valid. All use
// the same options (ops/options.hpp).
#pragma once

#include <cstdint>
#include <map>

#include "device/device.hpp"

#include "nn/activations.hpp"
#include "nn/linear_products.hpp"
#include "ops/attention.hpp"
#include "ops/options.hpp"

namespace trireme::nn {

/// Size of a batch for which layers are prepared.
struct BatchSize {
  std::int64_t sequences = 0, context = 0;
  DType dtype = DType::f32;
  CacheSize cache{};  ///< for decoding, forward only (PlanSizes); else not given

  [[nodiscard]] std::int64_t rows() const { return sequences * context; }
};

class Kernels {
 public:
  Kernels(device::Device& device, const ops::Options& options)
      : device_(device), options_(options) {}

  LinearProducts linear(const LinearShape& shape, bool backward = true) {
    return {&matmul(shape.forward()), backward ? &matmul(shape.input_gradient()) : nullptr,
            backward ? &matmul(shape.weight_gradient()) : nullptr};
  }
  ops::Matmul& matmul(const ops::MatmulShape& shape) {
    return matmuls_.try_emplace(shape, device_, shape, options_.products).first->second;
  }
  ops::Attention& attention(const ops::AttentionShape& shape) {
    return attentions_.try_emplace(shape, device_, shape, options_.attention).first->second;
  }

 private:
  device::Device& device_;
  const ops::Options options_;
  std::map<ops::MatmulShape, ops::Matmul> matmuls_;
  std::map<ops::AttentionShape, ops::Attention> attentions_;
};

}  // namespace trireme::nn
