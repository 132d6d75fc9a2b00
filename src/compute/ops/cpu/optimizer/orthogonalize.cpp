// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "ops/cpu/loops.hpp"
#include "ops/elementwise.hpp"
#include "ops/optimizer/orthogonalize_passes.hpp"

namespace trireme::ops::cpu {
namespace {

/// Sums in fixed lanes, so that the order of additions does not depend on the vector length.
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

TRIREME_INLINE float combined(float gram, float squared, const Polynomial& numbers) {
  return numbers.b * gram + numbers.c * squared;
}

template <class T>
TRIREME_CLONES void combine_kernel(const Combine* call, std::int64_t begin, std::int64_t end) {
  const std::int64_t n = call->n;
  const Polynomial numbers = call->numbers;
  for (std::int64_t row = begin; row < end; ++row) {
    const T* gram = call->gram.as<T>() + row * n;
    T* squared = call->squared.as<T>() + row * n;
    const float diagonal = combined(to_float(gram[row]), to_float(squared[row]), numbers);
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i)
      squared[i] = from_float<T>(combined(to_float(gram[i]), to_float(squared[i]), numbers));
    squared[row] = from_float<T>(diagonal + numbers.a);
  }
}

}  // namespace

template <class T>
void run(Threads where, const Normalize& call) {
  const auto* matrix = call.matrix.as<float>();
  auto* sums = call.sums.as<double>();
  for_chunks(call.x.elements, elements_per_sum, [&](std::int64_t begin, std::int64_t end) {
    sums[begin / elements_per_sum] = squares_kernel(matrix + begin, end - begin);
  });
  double squares = 0;
  for (std::int64_t c = 0; c < call.sums.elements; ++c) squares += sums[c];
  const double length = call.factor * std::sqrt(squares) + call.guard;
  run<T>(where, Cast{.to = call.x, .from = call.matrix, .factor = static_cast<float>(1 / length)});
}

template <class T>
void run(Threads, const Combine& call) {
  for_rows(call.n, call.n,
           [&](std::int64_t begin, std::int64_t end) { combine_kernel<T>(&call, begin, end); });
}

TRIREME_CPU_BODIES(Normalize);
TRIREME_CPU_BODIES(Combine);

}  // namespace trireme::ops::cpu
