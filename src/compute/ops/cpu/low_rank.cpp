// SPDX-License-Identifier: Apache-2.0
#include "ops/low_rank.hpp"

#include <array>
#include <cmath>

#include "ops/cpu/loops.hpp"

namespace trireme::ops::cpu {
namespace {

TRIREME_CLONES double dot_kernel(const float* a, const float* b, std::int64_t count) {
  constexpr std::size_t lanes = 16;
  std::array<double, lanes> sums{};
  for (; count >= std::int64_t{lanes}; count -= lanes, a += lanes, b += lanes)
#pragma omp simd
    for (std::size_t k = 0; k < lanes; ++k)
      sums[k] += static_cast<double>(a[k]) * static_cast<double>(b[k]);
  for (std::size_t k = 0; k < static_cast<std::size_t>(count); ++k)
    sums[k] += static_cast<double>(a[k]) * static_cast<double>(b[k]);
  double sum = 0;
  for (const double lane : sums) sum += lane;
  return sum;
}

TRIREME_CLONES void add_scaled_kernel(float* to, const float* from, float by, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) to[i] += by * from[i];
}

TRIREME_CLONES void scale_kernel(float* to, float by, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) to[i] *= by;
}

TRIREME_CLONES void subtract_kernel(float* rest, const float* term, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) rest[i] = finite_rest(rest[i], term[i]);
}

double norm(const float* row, std::int64_t length) {
  return std::sqrt(dot_kernel(row, row, length));
}

/// Subtracts from row `index` its projections on the rows before it. Returns its norm.
double subtract_projections(float* rows, std::int64_t index, std::int64_t length) {
  float* row = rows + index * length;
  for (int pass = 0; pass < 2; ++pass)
    for (const float* other = rows; other != row; other += length)
      add_scaled_kernel(row, other, -static_cast<float>(dot_kernel(row, other, length)), length);
  return norm(row, length);
}

}  // namespace

template <class T>
void run(Threads, const Orthonormalize& call) {
  const std::int64_t length = call.rows.elements / call.count;
  auto* rows = call.rows.as<T>();
  for (std::int64_t r = 0; r < call.count; ++r) {
    float* row = rows + r * length;
    const double before = norm(row, length);
    double rest = 0;
    const auto to_unit = static_cast<float>(1 / before);
    if (std::isfinite(before) && std::isfinite(to_unit)) {  // a unit row: nothing is subnormal
      scale_kernel(row, to_unit, length);
      rest = subtract_projections(rows, r, length);
    }
    for (std::int64_t random = r; !(rest > least_rest); random += call.count) {
      for (std::int64_t i = 0; i < length; ++i) row[i] = replacement_element(random, i);
      rest = subtract_projections(rows, r, length);
    }
    scale_kernel(row, static_cast<float>(1 / rest), length);
  }
}

template <class T>
void run(Threads, const SubtractFinite& call) {
  for_chunks(call.rest.elements, elements_per_chunk, [&](std::int64_t begin, std::int64_t end) {
    subtract_kernel(call.rest.as<T>() + begin, call.term.as<T>() + begin, end - begin);
  });
}

template void run<float>(Threads, const Orthonormalize&);
template void run<float>(Threads, const SubtractFinite&);

}  // namespace trireme::ops::cpu
