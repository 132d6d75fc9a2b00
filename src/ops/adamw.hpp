// SPDX-License-Identifier: Apache-2.0
// AdamW on a contiguous range: one pass that reads and writes each state once.
// Source: Loshchilov, Hutter 2019, algorithm 2, with bias correction; decay is multiplied by the
// learning rate.
//
//   g  = scale · gradient;  m = beta1·m + (1-beta1)·g;  v = beta2·v + (1-beta2)·g²
//   master -= learning_rate · ( (m/correction1) / (sqrt(v/correction2) + epsilon) +
//   weight_decay·master ) parameter = master, rounded to the parameter's dtype
//
// Shapes: all [n]; master, m, v, gradient fp32; parameter fp32 or bf16. In fp32 runs master and
// parameter may be the same view.
#pragma once

#include "base/view.hpp"

#include "device/device.hpp"

namespace trireme::ops {

struct AdamwStep {
  float learning_rate = 0, beta1 = 0, beta2 = 0, epsilon = 0, weight_decay = 0;
  float correction1 = 1, correction2 = 1;  ///< 1 - beta^step, computed in double by the caller
  float scale = 1;                         ///< 1/(ranks·micro-steps) times the clip factor
};

void adamw(View parameter,
           View master,
           View m,
           View v,
           ConstView gradient,
           const AdamwStep& step,
           device::Stream& stream);

}  // namespace trireme::ops
