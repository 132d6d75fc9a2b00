// SPDX-License-Identifier: Apache-2.0
// Calls of activations.hpp; T is float or Bf16. Where there is no other shape, all have `count`
// elements. Backward reads x, the input of forward.
#pragma once

#include <cstdint>

#include "ops/calls/call.hpp"

namespace trireme::ops {

template <class T>
struct SquaredReluForward {
  static constexpr const char* name = "squared_relu_forward";
  T* y;
  const T* x;
  std::int64_t count;
};

/// `dx` may be `dy`.
template <class T>
struct SquaredReluBackward {
  static constexpr const char* name = "squared_relu_backward";
  T* dx;
  const T* dy;
  const T* x;
  std::int64_t count;
};

/// x = [rows, 2 columns], gates first; y = [rows, columns].
template <class T>
struct SwigluForward {
  static constexpr const char* name = "swiglu_forward";
  T* y;
  const T* x;
  std::int64_t rows, columns;
};

/// x, dx = [rows, 2 columns], gates first; dy = [rows, columns]. `dx` may not overlap `dy`.
template <class T>
struct SwigluBackward {
  static constexpr const char* name = "swiglu_backward";
  T* dx;
  const T* dy;
  const T* x;
  std::int64_t rows, columns;
};

namespace cpu {
template <class T>
void run(Threads, const SquaredReluForward<T>& call);
template <class T>
void run(Threads, const SquaredReluBackward<T>& call);
template <class T>
void run(Threads, const SwigluForward<T>& call);
template <class T>
void run(Threads, const SwigluBackward<T>& call);
}  // namespace cpu

namespace cuda {
template <class T>
void run(const Queue& queue, const SquaredReluForward<T>& call);
template <class T>
void run(const Queue& queue, const SquaredReluBackward<T>& call);
template <class T>
void run(const Queue& queue, const SwigluForward<T>& call);
template <class T>
void run(const Queue& queue, const SwigluBackward<T>& call);
}  // namespace cuda

}  // namespace trireme::ops
