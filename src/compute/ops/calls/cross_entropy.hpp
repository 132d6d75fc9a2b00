// SPDX-License-Identifier: Apache-2.0
// Calls of cross_entropy.hpp; T is float or Bf16. Shapes: logits, gradient = [rows, vocabulary];
// targets, losses = [rows].
#pragma once

#include <cstdint>

#include "ops/calls/call.hpp"
#include "ops/loss_terms.hpp"

namespace trireme::ops {

template <class T>
struct CrossEntropyForward {
  static constexpr const char* name = "cross_entropy_forward";
  float* losses;
  const T* logits;
  const std::int32_t* targets;
  LossTerms terms;
  std::int64_t rows, vocabulary;
};

/// D is T or Bf16. `gradient` may be `logits`, row by row.
template <class T, class D>
struct CrossEntropyForwardBackward {
  static constexpr const char* name = "cross_entropy_forward_backward";
  float* losses;
  D* gradient;
  const T* logits;
  const std::int32_t* targets;
  LossTerms terms;
  float scale;  ///< a factor of the gradient
  std::int64_t rows, vocabulary;
};

/// logits = cap · tanh(logits / cap), in place.
struct CapLogits {
  static constexpr const char* name = "cap_logits";
  float* logits;
  LossTerms terms;
  std::int64_t count;
};

namespace cpu {
template <class T>
void run(Threads, const CrossEntropyForward<T>& call);
template <class T, class D>
void run(Threads, const CrossEntropyForwardBackward<T, D>& call);
void run(Threads, const CapLogits& call);
}  // namespace cpu

namespace cuda {
template <class T>
void run(const Queue& queue, const CrossEntropyForward<T>& call);
template <class T, class D>
void run(const Queue& queue, const CrossEntropyForwardBackward<T, D>& call);
void run(const Queue& queue, const CapLogits& call);
}  // namespace cuda

}  // namespace trireme::ops
