// SPDX-License-Identifier: Apache-2.0
#include "ops/cpu/optimizer/orthogonalize.hpp"

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

TRIREME_CLONES void scale_kernel(float* out, const float* x, float scale, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) out[i] = scale * x[i];
}

TRIREME_CLONES void combine_kernel(
    float* squared, const float* gram, float b, float c, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) squared[i] = b * gram[i] + c * squared[i];
}

}  // namespace

void scale_into(float* out, const float* x, float scale, std::int64_t count) {
  for_chunks(count, elements_per_chunk, [&](std::int64_t begin, std::int64_t end) {
    scale_kernel(out + begin, x + begin, scale, end - begin);
  });
}

void normalize(float* x, double* sums, std::int64_t count, double factor, double guard) {
  for_chunks(count, elements_per_chunk, [&](std::int64_t begin, std::int64_t end) {
    sums[begin / elements_per_chunk] = squares_kernel(x + begin, end - begin);
  });
  double squares = 0;
  for (std::int64_t c = 0; c * elements_per_chunk < count; ++c) squares += sums[c];
  scale_into(x, x, static_cast<float>(1 / (factor * std::sqrt(squares) + guard)), count);
}

void polynomial(float* squared, const float* gram, std::int64_t n, const Polynomial& numbers) {
  const std::int64_t rows = std::max<std::int64_t>(1, elements_per_chunk / n);
  for_chunks(n, rows, [&](std::int64_t begin, std::int64_t end) {
    combine_kernel(squared + begin * n, gram + begin * n, numbers.b, numbers.c, (end - begin) * n);
    for (std::int64_t row = begin; row < end; ++row) squared[row * n + row] += numbers.a;
  });
}

}  // namespace trireme::ops::cpu
