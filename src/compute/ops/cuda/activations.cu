// SPDX-License-Identifier: Apache-2.0
#include "ops/activations.hpp"
#include "ops/cuda/loops.cuh"

namespace trireme::ops::cuda {
namespace {

// 0.5 x (1 + tanh(u)) = x sigmoid(2u) with u = sqrt(2/pi) (x + 0.044715 x^3).
constexpr float two_slope = 1.59576912161F;  // 2 sqrt(2/pi)
constexpr float cubic = 0.044715F;

/// e^(-2u), never infinite: infinity times a gate of zero would be NaN in backward. Keeps NaN.
__device__ inline float gate_exponential(float x) {
  constexpr float highest = 88.3F;
  const float at = -two_slope * (x + cubic * x * x * x);
  return expf(at > highest ? highest : at);
}

struct Gelu {
  __device__ static float value(float x) { return x / (1.0F + gate_exponential(x)); }
  __device__ static float slope(float x) {
    const float e = gate_exponential(x);
    const float s = 1.0F / (1.0F + e);
    const float slope = two_slope * (1.0F + 3.0F * cubic * x * x);
    // s(1 - s) = e s s. Far from zero it vanishes before the slope can overflow against it.
    const float bend = x * x < 1.0e3F ? x * (e * s) * s * slope : 0.0F;
    return s + bend;
  }
};

/// Keeps NaN.
struct SquaredRelu {
  __device__ static float value(float x) { return x < 0 ? 0.0F : x * x; }
  __device__ static float slope(float x) { return x < 0 ? 0.0F : 2.0F * x; }
};

template <class T, class Function>
struct MapLoop {
  ActivationForward call;
  template <int N>
  __device__ void run(std::int64_t i) const {
    auto pack = load<N>(call.x.as<T>() + i);
    for (T& value : pack.v) value = from_float<T>(Function::value(to_float(value)));
    store<N>(call.y.as<T>() + i, pack);
  }
};

template <class T, class Function>
struct GradientLoop {
  ActivationBackward call;
  template <int N>
  __device__ void run(std::int64_t i) const {
    const auto at = load<N>(call.x.as<T>() + i);
    auto pack = load<N>(call.dy.as<T>() + i);
    for (int k = 0; k < N; ++k)
      pack.v[k] = from_float<T>(to_float(pack.v[k]) * Function::slope(to_float(at.v[k])));
    store<N>(call.dx.as<T>() + i, pack);
  }
};

template <class T, class Function>
void map(const Queue& queue, const ActivationForward& call) {
  loop<pack_elements<T>>(call.name, MapLoop<T, Function>{call}, call.x.elements,
                         aligned(call.y, call.x), queue.stream);
}
template <class T, class Function>
void gradient(const Queue& queue, const ActivationBackward& call) {
  loop<pack_elements<T>>(call.name, GradientLoop<T, Function>{call}, call.x.elements,
                         aligned(call.dx, call.dy, call.x), queue.stream);
}

/// e^-z, never infinite: infinity times a gate of zero would be NaN in backward. Keeps NaN.
__device__ inline float silu_exponential(float z) {
  constexpr float highest = 88.3F;
  return expf(-z > highest ? highest : -z);
}

template <class T>
struct SwigluForwardLoop {
  ActivationForward call;
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
  ActivationBackward call;
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
void run(const Queue& queue, const ActivationForward& call) {
  if (call.function == Activation::gelu)
    return map<T, Gelu>(queue, call);
  if (call.function == Activation::squared_relu)
    return map<T, SquaredRelu>(queue, call);
  constexpr int N = pack_elements<T>;
  loop<N>(call.name, SwigluForwardLoop<T>{call}, call.y.elements,
          aligned(call.y, call.x) && call.columns % N == 0, queue.stream);
}

template <class T>
void run(const Queue& queue, const ActivationBackward& call) {
  if (call.function == Activation::gelu)
    return gradient<T, Gelu>(queue, call);
  if (call.function == Activation::squared_relu)
    return gradient<T, SquaredRelu>(queue, call);
  constexpr int N = pack_elements<T>;
  loop<N>(call.name, SwigluBackwardLoop<T>{call}, call.dy.elements,
          aligned(call.dx, call.dy, call.x) && call.columns % N == 0, queue.stream);
}

TRIREME_CUDA_BODIES(ActivationForward);
TRIREME_CUDA_BODIES(ActivationBackward);

}  // namespace trireme::ops::cuda
