// SPDX-License-Identifier: Apache-2.0
#include "ops/rotary.hpp"

#include "ops/cpu/loops.hpp"

namespace trireme::ops::cpu {
namespace {

/// One row: `direction` is 1, or -1 for the inverse.
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
  const auto* positions = call.positions.as_optional<std::int32_t>();
  for_rows(call.packed.elements / shape.stride, shape.stride,
           [&](std::int64_t begin, std::int64_t end) {
             for (std::int64_t r = begin; r < end; ++r) {
               const std::int64_t position = positions != nullptr ? positions[r] : r % shape.time;
               const float* cosines = call.table.as<float>() + position * shape.head_channels;
               rotate_row(call.packed.as<T>() + r * shape.stride, cosines, cosines + half,
                          shape.heads, half, direction);
             }
           });
}

TRIREME_CPU_BODIES(Rotate);

}  // namespace trireme::ops::cpu
