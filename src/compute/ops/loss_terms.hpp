// SPDX-License-Identifier: Apache-2.0
// What a loss has beside softmax and cross-entropy. Without either it is what it is without them,
// to the bit.
#pragma once

namespace trireme::ops {

struct LossTerms {
  /// c: the loss sees c · tanh(logit / c) in the place of each logit. 0: the logit itself.
  /// Source: Gemma Team 2024 (Gemma 2), section 2.
  float softcap = 0;
  /// k: training also minimizes k · log²(sum exp logits), which keeps the sum near 1. 0: nothing.
  /// Source: Chowdhery et al. 2022 (PaLM), section 5.
  float z_loss = 0;

  [[nodiscard]] bool capped() const { return softcap > 0; }
};

}  // namespace trireme::ops
