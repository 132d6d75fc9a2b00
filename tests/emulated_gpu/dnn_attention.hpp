// SPDX-License-Identifier: Apache-2.0
// The arithmetic of the stand-in for cuDNN: causal attention on strided bf16 tensors, forward and
// backward, with plain loops.
//
// 1. Scores, exponentials and sums are fp32. Probabilities and gradients of scores are rounded to
//    bf16 before the next product, as on the tensor cores in FlashAttention-2.
// 2. stats is the natural logarithm of a row's sum of exponentials of the scaled scores.
// 3. Compiled with optimization and without sanitizers: the address sanitizer is queried once per
//    row of every tensor.
#pragma once

#include <array>
#include <cstdint>

namespace emulated::dnn {

/// [batch, head, time, channel] at `data`, in elements.
struct Tensor {
  void* data = nullptr;
  std::array<std::int64_t, 4> dim{}, stride{};
};

struct Forward {
  Tensor q, k, v, out, stats;
  float scale = 1;
};
void forward(const Forward& f);

struct Backward {
  Tensor q, k, v, out, dout, stats, dq, dk, dv;
  float scale = 1;
  bool in_order = true;  ///< adds up dQ from the first key to the last; else in reverse
};
void backward(const Backward& b);

}  // namespace emulated::dnn
