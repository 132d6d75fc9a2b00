// SPDX-License-Identifier: Apache-2.0
// A thread per pair of channels: it reads and writes both, and no other thread does.
#include "ops/calls/rotary.hpp"
#include "ops/cuda/loops.cuh"

namespace trireme::ops::cuda {
namespace {

template <class T>
struct RotateLoop {
  Rotate<T> call;
  std::int64_t half;
  template <int N>
  __device__ void run(std::int64_t i) const {
    const std::int64_t j = i % half, h = i / half % call.shape.heads;
    const std::int64_t row = i / half / call.shape.heads;
    const std::int64_t position =
        call.positions != nullptr ? call.positions[row] : row % call.shape.time;
    const float* angles = call.table + position * 2 * half + j;
    const float cosine = angles[0], sine = angles[half] * call.direction;
    T* first = call.packed + row * call.shape.stride + 2 * h * half + j;
    T* second = first + half;
    const float a = to_float(*first), b = to_float(*second);
    *first = from_float<T>(a * cosine - b * sine);
    *second = from_float<T>(b * cosine + a * sine);
  }
};

}  // namespace

template <class T>
void run(const Queue& queue, const Rotate<T>& call) {
  const std::int64_t half = call.shape.head_channels / 2;
  loop<1>(call.name, RotateLoop<T>{call, half}, call.rows * call.shape.heads * half, false,
          queue.stream);
}

TRIREME_CUDA_BODIES(Rotate);

}  // namespace trireme::ops::cuda
