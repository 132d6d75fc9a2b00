// SPDX-License-Identifier: Apache-2.0
#include "ops/calls/orthogonalize.hpp"

#include <algorithm>
#include <cmath>

#include "ops/cpu/loops.hpp"

namespace trireme::ops::cpu {
namespace {

/// In lanes, so that the order of additions is the same whatever the vectors' length.
TRIREME_CLONES double squares_kernel(const float* x, std::int64_t count) {
  constexpr std::int64_t at_a_time = 8;
  double sums[at_a_time] = {};
  std::int64_t i = 0;
  for (; i + at_a_time <= count; i += at_a_time)
#pragma omp simd
    for (std::int64_t lane = 0; lane < at_a_time; ++lane) {
      const auto one = static_cast<double>(x[i + lane]);
      sums[lane] += one * one;
    }
  for (; i < count; ++i) sums[0] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  double sum = 0;
  for (const double one : sums) sum += one;
  return sum;
}

template <class To, class From>
TRIREME_CLONES void scale_kernel(To* out, const From* x, float scale, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) out[i] = from_float<To>(scale * to_float(x[i]));
}

TRIREME_INLINE float combined(float gram, float squared, const Polynomial& numbers) {
  return numbers.b * gram + numbers.c * squared;
}

template <class T>
TRIREME_CLONES void combine_kernel(const Combine<T>* call, std::int64_t begin, std::int64_t end) {
  const Combine<T> c = *call;
  for (std::int64_t row = begin; row < end; ++row) {
    const T* gram = c.gram + row * c.n;
    T* squared = c.squared + row * c.n;
    const float diagonal = combined(to_float(gram[row]), to_float(squared[row]), c.numbers);
#pragma omp simd
    for (std::int64_t i = 0; i < c.n; ++i)
      squared[i] = from_float<T>(combined(to_float(gram[i]), to_float(squared[i]), c.numbers));
    squared[row] = from_float<T>(diagonal + c.numbers.a);
  }
}

template <class To, class From>
void scale_all(To* out, const From* x, float scale, std::int64_t count) {
  for_chunks(count, elements_per_chunk, [&](std::int64_t begin, std::int64_t end) {
    scale_kernel(out + begin, x + begin, scale, end - begin);
  });
}

}  // namespace

template <class T>
void run(Threads, const Normalize<T>& call) {
  for_chunks(call.count, elements_per_sum, [&](std::int64_t begin, std::int64_t end) {
    call.sums[begin / elements_per_sum] = squares_kernel(call.matrix + begin, end - begin);
  });
  double squares = 0;
  for (std::int64_t c = 0; c * elements_per_sum < call.count; ++c) squares += call.sums[c];
  const double length = call.factor * std::sqrt(squares) + call.guard;
  scale_all(call.x, call.matrix, static_cast<float>(1 / length), call.count);
}

template <class T>
void run(Threads, const Combine<T>& call) {
  const std::int64_t rows = std::max<std::int64_t>(1, elements_per_chunk / call.n);
  for_chunks(call.n, rows,
             [&](std::int64_t begin, std::int64_t end) { combine_kernel(&call, begin, end); });
}

template <class T>
void run(Threads, const ScaleInto<T>& call) {
  scale_all(call.out, call.x, call.scale, call.count);
}

TRIREME_CPU_BODIES(Normalize);
TRIREME_CPU_BODIES(Combine);
TRIREME_CPU_BODIES(ScaleInto);

}  // namespace trireme::ops::cpu
