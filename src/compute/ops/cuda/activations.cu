// SPDX-License-Identifier: Apache-2.0
#include "ops/activations.hpp"
#include "ops/cuda/loops.cuh"

namespace trireme::ops::cuda {
namespace {

template <class T>
struct SquaredReluForwardLoop {
  SquaredReluForward call;
  template <int N>
  __device__ void run(std::int64_t i) const {
    auto pack = load<N>(call.x.as<T>() + i);
    for (T& value : pack.v) {
      const float at = to_float(value);
      value = from_float<T>(at < 0 ? 0.0F : at * at);  // NaN stays
    }
    store<N>(call.y.as<T>() + i, pack);
  }
};

template <class T>
struct SquaredReluBackwardLoop {
  SquaredReluBackward call;
  template <int N>
  __device__ void run(std::int64_t i) const {
    const auto at_pack = load<N>(call.x.as<T>() + i);
    auto pack = load<N>(call.dy.as<T>() + i);
    for (int k = 0; k < N; ++k) {
      const float at = to_float(at_pack.v[k]);
      pack.v[k] = from_float<T>(to_float(pack.v[k]) * (at < 0 ? 0.0F : 2.0F * at));
    }
    store<N>(call.dx.as<T>() + i, pack);
  }
};

/// e^-z, never infinite: infinity times a gate of zero would be NaN in backward. NaN stays.
__device__ inline float silu_exponential(float z) {
  constexpr float highest = 88.3F;
  return expf(-z > highest ? highest : -z);
}

template <class T>
struct SwigluForwardLoop {
  SwigluForward call;
  template <int N>
  __device__ void run(std::int64_t i) const {
    const std::int64_t at = i / call.columns * 2 * call.columns + i % call.columns;
    const auto gate = load<N>(call.x.as<T>() + at),
               up = load<N>(call.x.as<T>() + at + call.columns);
    Pack<T, N> made;
    for (int k = 0; k < N; ++k) {
      const float g = to_float(gate.v[k]);
      made.v[k] = from_float<T>(g / (1.0F + silu_exponential(g)) * to_float(up.v[k]));
    }
    store<N>(call.y.as<T>() + i, made);
  }
};

template <class T>
struct SwigluBackwardLoop {
  SwigluBackward call;
  template <int N>
  __device__ void run(std::int64_t i) const {
    const std::int64_t at = i / call.columns * 2 * call.columns + i % call.columns;
    const auto gate = load<N>(call.x.as<T>() + at),
               up = load<N>(call.x.as<T>() + at + call.columns), d = load<N>(call.dy.as<T>() + i);
    Pack<T, N> dgate, dup;
    for (int k = 0; k < N; ++k) {
      const float g = to_float(gate.v[k]);
      const float e = silu_exponential(g);
      const float s = 1.0F / (1.0F + e);
      // silu' = s (1 + g (1 - s)) with 1 - s = e s.
      dgate.v[k] = from_float<T>(to_float(d.v[k]) * to_float(up.v[k]) * (s * (1.0F + g * (e * s))));
      dup.v[k] = from_float<T>(to_float(d.v[k]) * (g * s));
    }
    store<N>(call.dx.as<T>() + at, dgate);
    store<N>(call.dx.as<T>() + at + call.columns, dup);
  }
};

}  // namespace

template <class T>
void run(const Queue& queue, const SquaredReluForward& call) {
  loop<pack_elements<T>>(call.name, SquaredReluForwardLoop<T>{call}, call.x.elements,
                         aligned(call.y, call.x), queue.stream);
}

template <class T>
void run(const Queue& queue, const SquaredReluBackward& call) {
  loop<pack_elements<T>>(call.name, SquaredReluBackwardLoop<T>{call}, call.x.elements,
                         aligned(call.dx, call.dy, call.x), queue.stream);
}

template <class T>
void run(const Queue& queue, const SwigluForward& call) {
  constexpr int N = pack_elements<T>;
  loop<N>(call.name, SwigluForwardLoop<T>{call}, call.y.elements,
          aligned(call.y, call.x) && call.columns % N == 0, queue.stream);
}

template <class T>
void run(const Queue& queue, const SwigluBackward& call) {
  constexpr int N = pack_elements<T>;
  loop<N>(call.name, SwigluBackwardLoop<T>{call}, call.dy.elements,
          aligned(call.dx, call.dy, call.x) && call.columns % N == 0, queue.stream);
}

TRIREME_CUDA_BODIES(SquaredReluForward);
TRIREME_CUDA_BODIES(SquaredReluBackward);
TRIREME_CUDA_BODIES(SwigluForward);
TRIREME_CUDA_BODIES(SwigluBackward);

}  // namespace trireme::ops::cuda
