// SPDX-License-Identifier: Apache-2.0
// Calls of optimizer/orthogonalize.hpp: what lies between its products, which are of type T.
#pragma once

#include <cstdint>

#include "ops/calls/call.hpp"

namespace trireme::ops {

/// Elements per sum of squares.
inline constexpr std::int64_t elements_per_sum = 16384;

/// a I + b A + c A A.
struct Polynomial {
  float a = 0, b = 0, c = 0;
};

/// x = matrix / (factor · |matrix| + guard). x may be the matrix. `sums`: room for one number per
/// elements_per_sum elements.
template <class T>
struct Normalize {
  static constexpr const char* name = "normalize";
  T* x;
  const float* matrix;
  double* sums;
  std::int64_t count;
  double factor, guard;
};

/// Shapes: squared, gram [n, n]. `squared` holds gram · gram and becomes the polynomial of gram.
template <class T>
struct Combine {
  static constexpr const char* name = "combine";
  T* squared;
  const T* gram;
  std::int64_t n;
  Polynomial numbers;
};

/// out = scale · x; both may be the same.
template <class T>
struct ScaleInto {
  static constexpr const char* name = "scale_into";
  float* out;
  const T* x;
  float scale;
  std::int64_t count;
};

namespace cpu {
template <class T>
void run(Threads, const Normalize<T>& call);
template <class T>
void run(Threads, const Combine<T>& call);
template <class T>
void run(Threads, const ScaleInto<T>& call);
}  // namespace cpu

namespace cuda {
template <class T>
void run(const Queue& queue, const Normalize<T>& call);
template <class T>
void run(const Queue& queue, const Combine<T>& call);
template <class T>
void run(const Queue& queue, const ScaleInto<T>& call);
}  // namespace cuda

}  // namespace trireme::ops
