// SPDX-License-Identifier: Apache-2.0
#include "ops/calls/elementwise.hpp"
#include "ops/cuda/columns.cuh"
#include "ops/cuda/dropout.cuh"
#include "ops/cuda/loops.cuh"

namespace trireme::ops::cuda {
namespace {

// As ops/cpu/elementwise.cpp: 0.5 x (1 + tanh(u)) = x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715
// x^3).
constexpr float two_slope = 1.59576912161F;  // 2 sqrt(2/pi)
constexpr float cubic = 0.044715F;

/// e^(-2u), never infinite: infinity times a gate of zero would be NaN in backward. NaN stays.
__device__ inline float gate_exponential(float x) {
  constexpr float highest = 88.3F;
  const float at = -two_slope * (x + cubic * x * x * x);
  return expf(at > highest ? highest : at);
}

template <class T>
struct GeluForwardLoop {
  GeluForward<T> call;
  template <int N>
  __device__ void run(std::int64_t i) const {
    auto pack = load<N>(call.x + i);
    for (T& value : pack.v) {
      const float at = to_float(value);
      value = from_float<T>(at / (1.0F + gate_exponential(at)));
    }
    store<N>(call.y + i, pack);
  }
};

template <class T>
struct GeluBackwardLoop {
  GeluBackward<T> call;
  template <int N>
  __device__ void run(std::int64_t i) const {
    const auto at_pack = load<N>(call.x + i);
    auto pack = load<N>(call.dy + i);
    for (int k = 0; k < N; ++k) {
      const float at = to_float(at_pack.v[k]);
      const float e = gate_exponential(at);
      const float s = 1.0F / (1.0F + e);
      const float slope = two_slope * (1.0F + 3.0F * cubic * at * at);
      // s(1 - s) = e s s. Far from zero it vanishes before the slope can overflow against it.
      const float bend = at * at < 1.0e3F ? at * (e * s) * s * slope : 0.0F;
      pack.v[k] = from_float<T>(to_float(pack.v[k]) * (s + bend));
    }
    store<N>(call.dx + i, pack);
  }
};

template <class T>
struct DropoutBackwardLoop {
  DropoutBackward<T> call;
  template <int N>
  __device__ void run(std::int64_t i) const {
    auto pack = load<N>(call.dy + i);
    float values[N];
    for (int k = 0; k < N; ++k) values[k] = to_float(pack.v[k]);
    if (call.dropout.active())
      drop<N>(values, call.dropout, static_cast<std::uint64_t>(i / call.columns),
              static_cast<std::uint64_t>(i % call.columns));
    for (int k = 0; k < N; ++k) pack.v[k] = from_float<T>(values[k]);
    store<N>(call.dbranch + i, pack);
  }
};

struct AddLoop {
  Add call;
  template <int N>
  __device__ void run(std::int64_t i) const {
    auto pack = load<N>(call.sum + i);
    const auto other = load<N>(call.term + i);
    for (int k = 0; k < N; ++k) pack.v[k] += other.v[k];
    store<N>(call.sum + i, pack);
  }
};

template <class To, class From>
struct CastLoop {
  Cast<To, From> call;
  template <int N>
  __device__ void run(std::int64_t i) const {
    const auto in = load<N>(call.from + i);
    Pack<To, N> out;
    for (int k = 0; k < N; ++k) out.v[k] = from_float<To>(to_float(in.v[k]));
    store<N>(call.to + i, out);
  }
};

template <class C, class B>
struct SpreadBias {
  C* c;
  const B* bias;
  std::int64_t columns;
  bool accumulate;
  template <int N>
  __device__ void run(std::int64_t i) const {
    for (int k = 0; k < N; ++k)
      c[i + k] = from_float<C>(to_float(bias[(i + k) % columns]) +
                               (accumulate ? to_float(c[i + k]) : 0.0F));
  }
};

template <class T>
struct BiasTerms {
  BiasBackward<T> call;
  template <int N>
  __device__ void add(float (&sums)[1][N], std::int64_t row, std::int64_t column) const {
    const auto pack = load<N>(call.dy + row * call.columns + column);
    for (int k = 0; k < N; ++k) sums[0][k] += to_float(pack.v[k]);
  }
};

}  // namespace

template <class T>
void run(const Queue& queue, const GeluForward<T>& call) {
  loop<pack_elements<T>>(call.name, GeluForwardLoop<T>{call}, call.count, aligned(call.y, call.x),
                         queue.stream);
}

template <class T>
void run(const Queue& queue, const GeluBackward<T>& call) {
  loop<pack_elements<T>>(call.name, GeluBackwardLoop<T>{call}, call.count,
                         aligned(call.dx, call.dy, call.x), queue.stream);
}

template <class T>
void run(const Queue& queue, const DropoutBackward<T>& call) {
  constexpr int N = pack_elements<T>;
  loop<N>(call.name, DropoutBackwardLoop<T>{call}, call.rows * call.columns,
          aligned(call.dbranch, call.dy) && call.columns % N == 0, queue.stream);
}

template <class T>
void run(const Queue& queue, const BiasBackward<T>& call) {
  constexpr int N = pack_elements<T>;
  add_column_sums<1, N>(call.name, BiasTerms<T>{call}, {call.db}, call.rows, call.columns,
                        aligned(call.dy) && call.columns % N == 0, queue);
}

void run(const Queue& queue, const Add& call) {
  loop<4>(call.name, AddLoop{call}, call.count, aligned(call.sum, call.term), queue.stream);
}

template <class To, class From>
void run(const Queue& queue, const Cast<To, From>& call) {
  constexpr int width =
      pack_elements < To >> pack_elements<From> ? pack_elements<To> : pack_elements<From>;
  loop<width>(call.name, CastLoop<To, From>{call}, call.count, aligned(call.to, call.from),
              queue.stream);
}

template <class C, class B>
void spread_bias(C* c,
                 const B* bias,
                 std::int64_t rows,
                 std::int64_t columns,
                 bool accumulate,
                 RawStream stream) {
  loop<1>("spread_bias", SpreadBias<C, B>{c, bias, columns, accumulate}, rows * columns, false,
          stream);
}

TRIREME_CUDA_BODIES(GeluForward);
TRIREME_CUDA_BODIES(GeluBackward);
TRIREME_CUDA_BODIES(DropoutBackward);
TRIREME_CUDA_BODIES(BiasBackward);
template void run(const Queue&, const Cast<float, float>&);
template void run(const Queue&, const Cast<float, Bf16>&);
template void run(const Queue&, const Cast<Bf16, float>&);
template void run(const Queue&, const Cast<Bf16, Bf16>&);
template void spread_bias(float*, const float*, std::int64_t, std::int64_t, bool, RawStream);
template void spread_bias(float*, const Bf16*, std::int64_t, std::int64_t, bool, RawStream);
template void spread_bias(Bf16*, const float*, std::int64_t, std::int64_t, bool, RawStream);
template void spread_bias(Bf16*, const Bf16*, std::int64_t, std::int64_t, bool, RawStream);

}  // namespace trireme::ops::cuda
