// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/activations.hpp"
#include "ops/cuda/loops.cuh"

namespace trireme::ops::cuda {
namespace {

template <class T>
struct SquaredReluForward {
  T* y;
  const T* x;
  template <int N>
  __device__ void run(std::int64_t i) const {
    auto pack = load<N>(x + i);
    for (T& value : pack.v) {
      const float at = to_float(value);
      value = from_float<T>(at < 0 ? 0.0F : at * at);  // NaN stays
    }
    store<N>(y + i, pack);
  }
};

template <class T>
struct SquaredReluBackward {
  T* dx;
  const T* dy;
  const T* x;
  template <int N>
  __device__ void run(std::int64_t i) const {
    const auto at_pack = load<N>(x + i);
    auto pack = load<N>(dy + i);
    for (int k = 0; k < N; ++k) {
      const float at = to_float(at_pack.v[k]);
      pack.v[k] = from_float<T>(to_float(pack.v[k]) * (at < 0 ? 0.0F : 2.0F * at));
    }
    store<N>(dx + i, pack);
  }
};

/// e^-z, never infinite: infinity times a gate of zero would be NaN in backward. NaN stays.
__device__ inline float silu_exponential(float z) {
  constexpr float highest = 88.3F;
  return expf(-z > highest ? highest : -z);
}

template <class T>
struct SwigluForward {
  T* y;
  const T* x;
  std::int64_t columns;
  template <int N>
  __device__ void run(std::int64_t i) const {
    const std::int64_t at = i / columns * 2 * columns + i % columns;
    const auto gate = load<N>(x + at), up = load<N>(x + at + columns);
    Pack<T, N> made;
    for (int k = 0; k < N; ++k) {
      const float g = to_float(gate.v[k]);
      made.v[k] = from_float<T>(g / (1.0F + silu_exponential(g)) * to_float(up.v[k]));
    }
    store<N>(y + i, made);
  }
};

template <class T>
struct SwigluBackward {
  T* dx;
  const T* dy;
  const T* x;
  std::int64_t columns;
  template <int N>
  __device__ void run(std::int64_t i) const {
    const std::int64_t at = i / columns * 2 * columns + i % columns;
    const auto gate = load<N>(x + at), up = load<N>(x + at + columns), d = load<N>(dy + i);
    Pack<T, N> dgate, dup;
    for (int k = 0; k < N; ++k) {
      const float g = to_float(gate.v[k]);
      const float e = silu_exponential(g);
      const float s = 1.0F / (1.0F + e);
      // silu' = s (1 + g (1 - s)) with 1 - s = e s.
      dgate.v[k] = from_float<T>(to_float(d.v[k]) * to_float(up.v[k]) * (s * (1.0F + g * (e * s))));
      dup.v[k] = from_float<T>(to_float(d.v[k]) * (g * s));
    }
    store<N>(dx + at, dgate);
    store<N>(dx + at + columns, dup);
  }
};

}  // namespace

template <class T>
void squared_relu_forward(T* y, const T* x, std::int64_t count, RawStream stream) {
  loop<pack_elements<T>>("squared_relu_forward", SquaredReluForward<T>{y, x}, count, aligned(y, x),
                         stream);
}

template <class T>
void squared_relu_backward(T* dx, const T* dy, const T* x, std::int64_t count, RawStream stream) {
  loop<pack_elements<T>>("squared_relu_backward", SquaredReluBackward<T>{dx, dy, x}, count,
                         aligned(dx, dy, x), stream);
}

template <class T>
void swiglu_forward(T* y, const T* x, std::int64_t rows, std::int64_t columns, RawStream stream) {
  constexpr int N = pack_elements<T>;
  loop<N>("swiglu_forward", SwigluForward<T>{y, x, columns}, rows * columns,
          aligned(y, x) && columns % N == 0, stream);
}

template <class T>
void swiglu_backward(
    T* dx, const T* dy, const T* x, std::int64_t rows, std::int64_t columns, RawStream stream) {
  constexpr int N = pack_elements<T>;
  loop<N>("swiglu_backward", SwigluBackward<T>{dx, dy, x, columns}, rows * columns,
          aligned(dx, dy, x) && columns % N == 0, stream);
}

#define TRIREME_INSTANTIATE(T)                                                          \
  template void squared_relu_forward(T*, const T*, std::int64_t, RawStream);            \
  template void squared_relu_backward(T*, const T*, const T*, std::int64_t, RawStream); \
  template void swiglu_forward(T*, const T*, std::int64_t, std::int64_t, RawStream);    \
  template void swiglu_backward(T*, const T*, const T*, std::int64_t, std::int64_t, RawStream);
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(Bf16)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::ops::cuda
