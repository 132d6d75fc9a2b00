// SPDX-License-Identifier: Apache-2.0
// The arithmetic of the stand-in for cuDNN: causal attention on strided bf16 tensors, forward and
// backward, by plain loops.
//
// 1. Scores, exponentials and sums are fp32. The probabilities and the gradients of the scores are
//    rounded to bf16 before they are multiplied again, as the tensor cores of FlashAttention-2 do.
// 2. stats is the natural logarithm of a row's sum of exponentials, of scaled scores.
// 3. Compiled optimized and without sanitizers: the address sanitizer is asked once per row of
// every tensor.
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
  bool in_order = true;  ///< adds up dQ from the first key to the last; else the other way
};
void backward(const Backward& b);

}  // namespace emulated::dnn
