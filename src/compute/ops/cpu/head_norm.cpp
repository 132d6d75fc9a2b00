// SPDX-License-Identifier: Apache-2.0
// Norms and rotations of heads. A head has a few hundred elements or less, which stay in the
// first-level cache between passes.
#include "ops/head_norm.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "ops/cpu/levels.hpp"

namespace trireme::ops::cpu {
namespace {

/// Channels of the first half of a head; all of an odd number, which is not rotated.
TRIREME_INLINE std::int64_t half_of(const HeadNorm& all) {
  return all.channels() % 2 == 0 ? all.channels() / 2 : all.channels();
}

}  // namespace
}  // namespace trireme::ops::cpu

#define TRIREME_KERNELS "ops/cpu/head_norm_kernels.hpp"
#include "ops/cpu/for_each_level.hpp"

namespace trireme::ops::cpu {
namespace {

constexpr std::int64_t columns_together = 16;
constexpr std::int64_t rows_per_part = 64;
using Sums = std::array<float, columns_together>;

/// Sums are accumulated per 64 rows, so the error grows with rows / 64.
template <class T>
void gradient_of_gain(float* to,
                      const HeadNormBackward& call,
                      std::int64_t begin,
                      std::int64_t end) {
  const HeadNorm& all = call.norm;
  const std::int64_t rows = call.d_packed.elements / all.shape.stride, half = half_of(all);
  for_chunks(half, columns_together, [&](std::int64_t column, std::int64_t last) {
    Sums first_total{}, second_total{};
    for (std::int64_t part = 0; part < rows; part += rows_per_part) {
      Sums first{}, second{};
      TRIREME_BEST(sum_gain_terms<T>)
      (first.data(), second.data(), call.d_packed.as<T>(), call.raw.as<T>(), call.rstd.as<float>(),
       all, part, std::min(rows, part + rows_per_part), begin, end, column);
      for (std::size_t i = 0; i < first.size(); ++i) {
        first_total[i] += first[i];
        second_total[i] += second[i];
      }
    }
    for (std::int64_t c = column; c < last; ++c) {
      to[c] += first_total[static_cast<std::size_t>(c - column)];
      if (half + c < all.channels())
        to[half + c] += second_total[static_cast<std::size_t>(c - column)];
    }
  });
}

/// One row of heads of 2 · `half` channels: `direction` is 1, or -1 for the inverse.
template <class T>
TRIREME_CLONES void rotate_row(T* row,
                               const float* cosines,
                               const float* sines,
                               std::int64_t heads,
                               std::int64_t half,
                               float direction) {
  for (std::int64_t h = 0; h < heads; ++h) {
    T* first = row + 2 * h * half;
    T* second = first + half;
#pragma omp simd
    for (std::int64_t j = 0; j < half; ++j) {
      const float a = to_float(first[j]), b = to_float(second[j]);
      const float s = sines[j] * direction;
      first[j] = from_float<T>(a * cosines[j] - b * s);
      second[j] = from_float<T>(b * cosines[j] + a * s);
    }
  }
}

}  // namespace

template <class T>
void run(Threads, const Rotate& call) {
  const RotaryShape& shape = call.shape;
  const std::int64_t half = shape.head_channels / 2;
  const float direction = call.direction == Direction::inverse ? -1.0F : 1.0F;
  for_rows(call.packed.elements / shape.stride, shape.stride,
           [&](std::int64_t begin, std::int64_t end) {
             for (std::int64_t r = begin; r < end; ++r) {
               const float* cosines = angles_of(r, call.table, call.positions, shape);
               rotate_row(call.packed.as<T>() + r * shape.stride, cosines, cosines + half,
                          shape.heads, half, direction);
             }
           });
}

template <class T>
void run(Threads, const HeadNormForward& call) {
  const HeadNorm& all = call.norm;
  const std::int64_t rows = call.packed.elements / all.shape.stride;
  const std::int64_t heads = all.heads(), kept = heads * all.channels();
  for_rows(rows, kept, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      T* raw = call.raw.empty() ? nullptr : call.raw.as<T>() + r * kept;
      float* rstd = call.rstd.empty() ? nullptr : call.rstd.as<float>() + r * heads;
      TRIREME_BEST(norm_heads<T>)
      (call.packed.as<T>() + r * all.shape.stride, raw, rstd, all.angles_of(r), all);
    }
  });
}

template <class T>
void run(Threads, const HeadNormBackward& call) {
  const HeadNorm& all = call.norm;
  const std::int64_t rows = call.d_packed.elements / all.shape.stride;
  const std::int64_t heads = all.heads(), kept = heads * all.channels();
  // The gains first, because the gradient is overwritten.
  if (!call.d_query_gain.empty()) {
    gradient_of_gain<T>(call.d_query_gain.as<float>(), call, 0, all.query_heads);
    gradient_of_gain<T>(call.d_key_gain.as<float>(), call, all.query_heads, heads);
  }
  for_rows(rows, kept, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) TRIREME_BEST(norm_heads_backward<T>)
    (call.d_packed.as<T>() + r * all.shape.stride, call.raw.as<T>() + r * kept,
     call.rstd.as<float>() + r * heads, all.angles_of(r), all);
  });
}

TRIREME_CPU_BODIES(Rotate);
TRIREME_CPU_BODIES(HeadNormForward);
TRIREME_CPU_BODIES(HeadNormBackward);

}  // namespace trireme::ops::cpu
