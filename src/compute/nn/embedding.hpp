// SPDX-License-Identifier: Apache-2.0
// The embedding, which begins the residual stream: a vector per token, plus one per position if
// positions are learned.
#pragma once

#include <cstdint>

#include "nn/call.hpp"
#include "nn/registry.hpp"
#include "ops/embedding.hpp"

namespace trireme::nn {

struct EmbeddingConfig {
  std::int64_t channels = 0, vocabulary = 0, context = 0;
  bool shared = false;   ///< with the head; ready last, so in its own bucket
  double deviation = 0;  ///< of initial values
  bool positions = true;
};

class Embedding {
 public:
  /// Registers wte.weight and, with positions, wpe.weight.
  Embedding(Registry& registry, const EmbeddingConfig& config);

  void forward(const Call& call, View x, ConstView tokens) const;
  /// Adds to the gradients and reports them.
  void backward(const Call& call, ConstView dx, ConstView tokens) const;

  [[nodiscard]] ParameterIndex tokens() const { return tokens_; }

 private:
  [[nodiscard]] ops::EmbeddingShape shape(const Call& call) const;

  const EmbeddingConfig config_;
  ParameterIndex tokens_, positions_ = absent;
  std::uint32_t dropout_site_;
};

}  // namespace trireme::nn
