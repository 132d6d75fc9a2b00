// SPDX-License-Identifier: Apache-2.0
// The normalization of queries and keys, head by head (ops/head_norm.hpp), and their rotation in
// the same pass where positions are rotary. It works in the packed queries, keys and values of an
// attention layer, of which it keeps the queries and keys as they were while training.
#pragma once

#include <cstdint>
#include <string>

#include "nn/activations.hpp"
#include "nn/call.hpp"
#include "nn/registry.hpp"
#include "nn/rotary.hpp"
#include "ops/attention.hpp"
#include "ops/head_norm.hpp"

namespace trireme::nn {

struct HeadNormConfig {
  std::int64_t heads = 0;  ///< of queries and of keys
  std::int64_t query_heads = 0;
  std::int64_t channels = 0;  ///< of a head
  bool gain = false;          ///< one per channel for queries, and one for keys
  double epsilon = 0;
};

class HeadNorm {
 public:
  /// With gains registers NAME.q_norm.weight and NAME.k_norm.weight. `rotary` outlives it; null:
  /// nothing turns.
  HeadNorm(Registry& registry,
           const std::string& name,
           const HeadNormConfig& config,
           const Rotary* rotary);

  void plan(Planner& planner);
  /// 6 per parameter.
  [[nodiscard]] double flops_per_token() const;

  void forward(const Call& call, View packed, const ops::AttentionShape& shape) const;
  /// In place, from the gradient of what forward made; reports the gains.
  void backward(const Call& call, View d_packed, const ops::AttentionShape& shape) const;

 private:
  [[nodiscard]] ops::HeadNorm norm(const Call& call, const ops::AttentionShape& shape) const;

  const HeadNormConfig config_;
  const Rotary* const rotary_;
  ParameterIndex query_gain_ = absent, key_gain_ = absent;
  Slot raw_, rstd_;
};

}  // namespace trireme::nn
