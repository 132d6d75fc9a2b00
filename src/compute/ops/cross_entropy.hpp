// SPDX-License-Identifier: Apache-2.0
// Softmax and cross-entropy in one pass over the logits, optionally with a soft cap. Capped logits
// are never stored. Below, z are the logits after the cap.
#pragma once

#include <cstdint>

#include "ops/operation.hpp"

namespace trireme::ops {

/// Optional terms of a loss in addition to softmax and cross-entropy. Without them the result has
/// the bits of plain cross-entropy.
struct LossTerms {
  /// c: the loss uses c · tanh(logit / c) instead of each logit. 0: no cap.
  /// Source: Gemma Team 2024 (Gemma 2), section 2.
  float softcap = 0;
  /// k: training also minimizes k · log²(sum exp logits), which keeps the sum near 1. 0: no z-loss.
  /// Source: Chowdhery et al. 2022 (PaLM), section 5.
  float z_loss = 0;

  [[nodiscard]] bool capped() const { return softcap > 0; }
};

/// losses[row] = log(sum exp z[row]) - z[row, target]: the cross-entropy alone, without a z-loss.
/// d_logits = scale times the gradient of the loss plus k · log²(sum exp z):
/// scale · (softmax(z) · (1 + 2 k log(sum exp z)) - onehot(target)) · (1 - (z / c)²), the last
/// factor only with a cap. Losses have the same bits with and without d_logits.
struct CrossEntropy {
  static constexpr const char* name = "cross_entropy";
  View losses;         ///< [rows] fp32
  View d_logits = {};  ///< optional, [rows, vocabulary] of T, may be logits; or bf16, rounded once
  ConstView logits;    ///< [rows, vocabulary] of T
  ConstView targets;   ///< [rows] int32; a negative target is ignored: loss 0, gradient 0
  LossTerms terms = {};
  float scale = 1;

  [[nodiscard]] std::int64_t vocabulary() const { return logits.elements / targets.elements; }
};
TRIREME_OPERATION(CrossEntropy);

/// logits = cap(logits) in place, as the loss uses them. Does nothing without a cap.
struct CapLogits {
  static constexpr const char* name = "cap_logits";
  View logits;  ///< fp32
  LossTerms terms;
};
TRIREME_OPERATION(CapLogits);

}  // namespace trireme::ops
