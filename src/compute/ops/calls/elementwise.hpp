// SPDX-License-Identifier: Apache-2.0
// Calls of elementwise.hpp; T, To and From are float or Bf16. Shapes: `count` elements, or [rows,
// columns] without gaps; db = [columns].
#pragma once

#include <cstdint>

#include "ops/calls/call.hpp"
#include "ops/dropout.hpp"

namespace trireme::ops {

template <class T>
struct GeluForward {
  static constexpr const char* name = "gelu_forward";
  T* y;
  const T* x;
  std::int64_t count;
};

/// `x` is what went into the GELU; `dx` may be `dy`.
template <class T>
struct GeluBackward {
  static constexpr const char* name = "gelu_backward";
  T* dx;
  const T* dy;
  const T* x;
  std::int64_t count;
};

/// A row is a sample of the mask.
template <class T>
struct DropoutBackward {
  static constexpr const char* name = "dropout_backward";
  T* dbranch;
  const T* dy;
  std::int64_t rows, columns;
  Dropout dropout;
};

/// Sums over rows, which are cut by shape alone and added in a fixed order.
template <class T>
struct BiasBackward {
  static constexpr const char* name = "bias_backward";
  static constexpr bool uses_workspace = true;
  float* db;
  const T* dy;
  std::int64_t rows, columns;
};

/// `term` may be `sum`.
struct Add {
  static constexpr const char* name = "add";
  float* sum;
  const float* term;
  std::int64_t count;
};

/// To nearest even where To is the narrower type.
template <class To, class From>
struct Cast {
  static constexpr const char* name = "cast";
  To* to;
  const From* from;
  std::int64_t count;
};

namespace cpu {
template <class T>
void run(Threads, const GeluForward<T>& call);
template <class T>
void run(Threads, const GeluBackward<T>& call);
template <class T>
void run(Threads, const DropoutBackward<T>& call);
template <class T>
void run(Threads, const BiasBackward<T>& call);
void run(Threads, const Add& call);
template <class To, class From>
void run(Threads, const Cast<To, From>& call);
}  // namespace cpu

namespace cuda {
template <class T>
void run(const Queue& queue, const GeluForward<T>& call);
template <class T>
void run(const Queue& queue, const GeluBackward<T>& call);
template <class T>
void run(const Queue& queue, const DropoutBackward<T>& call);
template <class T>
void run(const Queue& queue, const BiasBackward<T>& call);
void run(const Queue& queue, const Add& call);
template <class To, class From>
void run(const Queue& queue, const Cast<To, From>& call);

/// Every row of c = [rows, columns] becomes the bias, or grows by it: of products whose library
/// has no bias.
template <class C, class B>
void spread_bias(C* c,
                 const B* bias,
                 std::int64_t rows,
                 std::int64_t columns,
                 bool accumulate,
                 RawStream stream);
}  // namespace cuda

}  // namespace trireme::ops
