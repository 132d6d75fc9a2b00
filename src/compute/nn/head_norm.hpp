// SPDX-License-Identifier: Apache-2.0
// RMS normalization of queries and keys per head (ops/head_norm.hpp), with their rotation in the
// same pass if positions are rotary. It works in place on the packed queries, keys and values of an
// attention layer, and in training retains the original queries and keys.
#pragma once

#include <cstdint>
#include <string>

#include "nn/activations.hpp"
#include "nn/call.hpp"
#include "nn/registry.hpp"
#include "nn/rotary.hpp"
#include "ops/head_norm.hpp"

namespace trireme::nn {

struct HeadNormConfig {
  std::int64_t heads = 0;  ///< query heads plus key heads
  std::int64_t query_heads = 0;
  std::int64_t channels = 0;  ///< of a head
  bool gain = false;          ///< one per channel for queries and for keys
  double epsilon = 0;
};

class HeadNorm {
 public:
  /// With gains, registers NAME.q_norm.weight and NAME.k_norm.weight. `rotary` must outlive the
  /// layer; null: no rotation.
  HeadNorm(Registry& registry,
           const std::string& name,
           const HeadNormConfig& config,
           const Rotary* rotary);

  void plan(Planner& planner);

  void forward(const Call& call, View packed, const ops::RotaryShape& shape) const;
  /// Replaces the gradient of forward's output with that of its input; reports the gains.
  void backward(const Call& call, View d_packed, const ops::RotaryShape& shape) const;

 private:
  [[nodiscard]] ops::HeadNorm norm(const Call& call, const ops::RotaryShape& shape) const;

  const HeadNormConfig config_;
  const Rotary* const rotary_;
  ParameterIndex query_gain_ = absent, key_gain_ = absent;
  Slot raw_, rstd_;
};

}  // namespace trireme::nn
