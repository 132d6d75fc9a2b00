// SPDX-License-Identifier: Apache-2.0
#include "ops/cpu/activations.hpp"

#include <algorithm>

#include "ops/cpu/loops.hpp"

namespace trireme::ops::cpu {
namespace {

template <class T>
TRIREME_CLONES void squared_relu_kernel(T* y, const T* x, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) {
    const float at = to_float(x[i]);
    y[i] = from_float<T>(at < 0 ? 0.0F : at * at);  // NaN stays
  }
}

template <class T>
TRIREME_CLONES void squared_relu_backward_kernel(T* dx,
                                                 const T* dy,
                                                 const T* x,
                                                 std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) {
    const float at = to_float(x[i]);
    dx[i] = from_float<T>(to_float(dy[i]) * (at < 0 ? 0.0F : 2.0F * at));
  }
}

/// Columns of one row.
template <class T>
TRIREME_CLONES void swiglu_kernel(T* y, const T* gate, const T* up, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) {
    const float g = to_float(gate[i]);
    y[i] = from_float<T>(g / (1.0F + fast_exp(-g)) * to_float(up[i]));
  }
}

template <class T>
TRIREME_CLONES void swiglu_backward_kernel(
    T* dgate, T* dup, const T* dy, const T* gate, const T* up, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) {
    const float g = to_float(gate[i]), d = to_float(dy[i]);
    const float e = fast_exp(-g);
    const float s = 1.0F / (1.0F + e);
    // silu' = s (1 + g (1 - s)) with 1 - s = e s.
    dgate[i] = from_float<T>(d * to_float(up[i]) * (s * (1.0F + g * (e * s))));
    dup[i] = from_float<T>(d * (g * s));
  }
}

/// Rows that one task takes.
std::int64_t rows_per_task(std::int64_t columns) {
  return std::max<std::int64_t>(1, elements_per_chunk / columns);
}

}  // namespace

template <class T>
void squared_relu_forward(T* y, const T* x, std::int64_t count) {
  for_chunks(count, elements_per_chunk, [=](std::int64_t begin, std::int64_t end) {
    squared_relu_kernel(y + begin, x + begin, end - begin);
  });
}

template <class T>
void squared_relu_backward(T* dx, const T* dy, const T* x, std::int64_t count) {
  for_chunks(count, elements_per_chunk, [=](std::int64_t begin, std::int64_t end) {
    squared_relu_backward_kernel(dx + begin, dy + begin, x + begin, end - begin);
  });
}

template <class T>
void swiglu_forward(T* y, const T* x, std::int64_t rows, std::int64_t columns) {
  for_chunks(rows, rows_per_task(columns), [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const T* gate = x + 2 * r * columns;
      swiglu_kernel(y + r * columns, gate, gate + columns, columns);
    }
  });
}

template <class T>
void swiglu_backward(T* dx, const T* dy, const T* x, std::int64_t rows, std::int64_t columns) {
  for_chunks(rows, rows_per_task(columns), [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const T* gate = x + 2 * r * columns;
      T* to = dx + 2 * r * columns;
      swiglu_backward_kernel(to, to + columns, dy + r * columns, gate, gate + columns, columns);
    }
  });
}

#define TRIREME_INSTANTIATE(T)                                               \
  template void squared_relu_forward(T*, const T*, std::int64_t);            \
  template void squared_relu_backward(T*, const T*, const T*, std::int64_t); \
  template void swiglu_forward(T*, const T*, std::int64_t, std::int64_t);    \
  template void swiglu_backward(T*, const T*, const T*, std::int64_t, std::int64_t);
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(Bf16)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::ops::cpu
