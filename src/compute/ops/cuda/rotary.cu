// SPDX-License-Identifier: Apache-2.0
// A thread per pair of channels: it reads and writes both, and no other thread does.
#include "ops/cuda/loops.cuh"
#include "ops/rotary.hpp"

namespace trireme::ops::cuda {
namespace {

template <class T>
struct RotateLoop {
  Rotate call;
  std::int64_t half;
  template <int N>
  __device__ void run(std::int64_t i) const {
    const std::int64_t j = i % half, h = i / half % call.shape.heads;
    const std::int64_t row = i / half / call.shape.heads;
    const std::int64_t position =
        call.positions.empty() ? row % call.shape.time : call.positions.as<std::int32_t>()[row];
    const float* angles = call.table.as<float>() + position * 2 * half + j;
    const float cosine = angles[0],
                sine = angles[half] * (call.direction == Direction::inverse ? -1.0F : 1.0F);
    T* first = call.packed.as<T>() + row * call.shape.stride + 2 * h * half + j;
    T* second = first + half;
    const float a = to_float(*first), b = to_float(*second);
    *first = from_float<T>(a * cosine - b * sine);
    *second = from_float<T>(b * cosine + a * sine);
  }
};

}  // namespace

template <class T>
void run(const Queue& queue, const Rotate& call) {
  const std::int64_t half = call.shape.head_channels / 2;
  loop<1>(call.name, RotateLoop<T>{call, half},
          call.packed.elements / call.shape.stride * call.shape.heads * half, false, queue.stream);
}

TRIREME_CUDA_BODIES(Rotate);

}  // namespace trireme::ops::cuda
