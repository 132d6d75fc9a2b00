// SPDX-License-Identifier: Apache-2.0
// The numbers of one AdamW step, the same for every element, that are known before its gradient is.
#pragma once

namespace trireme::ops {

struct AdamwStep {
  float learning_rate = 0, beta1 = 0, beta2 = 0, epsilon = 0, weight_decay = 0;
  /// Computed in double by the caller: near 1 the difference of two fp32 numbers has few digits.
  float gain1 = 1, gain2 = 1;              ///< 1 - beta
  float correction1 = 1, correction2 = 1;  ///< 1 - beta^step
};

}  // namespace trireme::ops
