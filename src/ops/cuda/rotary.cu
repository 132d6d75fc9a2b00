// SPDX-License-Identifier: Apache-2.0
// A thread per pair of channels: it reads and writes both, and no other thread does.
#include "ops/cuda/loops.cuh"
#include "ops/cuda/rotary.hpp"

namespace trireme::ops::cuda {
namespace {

template <class T>
struct Rotation {
  T* packed;
  const float* table;
  const std::int32_t* positions;
  std::int64_t time, heads, half, stride;
  float direction;
  template <int N>
  __device__ void run(std::int64_t i) const {
    const std::int64_t j = i % half, h = i / half % heads, row = i / half / heads;
    const std::int64_t position = positions != nullptr ? positions[row] : row % time;
    const float* angles = table + position * 2 * half + j;
    const float cosine = angles[0], sine = angles[half] * direction;
    T* first = packed + row * stride + 2 * h * half + j;
    T* second = first + half;
    const float a = to_float(*first), b = to_float(*second);
    *first = from_float<T>(a * cosine - b * sine);
    *second = from_float<T>(b * cosine + a * sine);
  }
};

}  // namespace

template <class T>
void rotate(T* packed,
            const float* table,
            const std::int32_t* positions,
            std::int64_t rows,
            const RotarySizes& sizes,
            bool back,
            RawStream stream) {
  const std::int64_t half = sizes.head_channels / 2;
  loop<1>("rotate",
          Rotation<T>{packed, table, positions, sizes.time, sizes.heads, half, sizes.stride,
                      back ? -1.0F : 1.0F},
          rows * sizes.heads * half, false, stream);
}

#define TRIREME_INSTANTIATE(T)                                                                  \
  template void rotate(T*, const float*, const std::int32_t*, std::int64_t, const RotarySizes&, \
                       bool, RawStream);
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(Bf16)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::ops::cuda
