// SPDX-License-Identifier: Apache-2.0
#include "ops/activations.hpp"

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
void run(Threads, const SquaredReluForward& call) {
  for_chunks(call.x.elements, elements_per_chunk, [=](std::int64_t begin, std::int64_t end) {
    squared_relu_kernel(call.y.as<T>() + begin, call.x.as<T>() + begin, end - begin);
  });
}

template <class T>
void run(Threads, const SquaredReluBackward& call) {
  for_chunks(call.x.elements, elements_per_chunk, [=](std::int64_t begin, std::int64_t end) {
    squared_relu_backward_kernel(call.dx.as<T>() + begin, call.dy.as<T>() + begin,
                                 call.x.as<T>() + begin, end - begin);
  });
}

template <class T>
void run(Threads, const SwigluForward& call) {
  const std::int64_t columns = call.columns;
  for_chunks(call.y.elements / columns, rows_per_task(columns),
             [=](std::int64_t begin, std::int64_t end) {
               for (std::int64_t r = begin; r < end; ++r) {
                 const T* gate = call.x.as<T>() + 2 * r * columns;
                 swiglu_kernel(call.y.as<T>() + r * columns, gate, gate + columns, columns);
               }
             });
}

template <class T>
void run(Threads, const SwigluBackward& call) {
  const std::int64_t columns = call.columns;
  for_chunks(call.dy.elements / columns, rows_per_task(columns),
             [=](std::int64_t begin, std::int64_t end) {
               for (std::int64_t r = begin; r < end; ++r) {
                 const T* gate = call.x.as<T>() + 2 * r * columns;
                 T* to = call.dx.as<T>() + 2 * r * columns;
                 swiglu_backward_kernel(to, to + columns, call.dy.as<T>() + r * columns, gate,
                                        gate + columns, columns);
               }
             });
}

TRIREME_CPU_BODIES(SquaredReluForward);
TRIREME_CPU_BODIES(SquaredReluBackward);
TRIREME_CPU_BODIES(SwigluForward);
TRIREME_CPU_BODIES(SwigluBackward);

}  // namespace trireme::ops::cpu
