// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/columns.cuh"
#include "ops/cuda/dropout.cuh"
#include "ops/cuda/elementwise.hpp"
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
struct GeluForward {
  T* y;
  const T* x;
  template <int N>
  __device__ void run(std::int64_t i) const {
    auto pack = load<N>(x + i);
    for (T& value : pack.v) {
      const float at = to_float(value);
      value = from_float<T>(at / (1.0F + gate_exponential(at)));
    }
    store<N>(y + i, pack);
  }
};

template <class T>
struct GeluBackward {
  T* dx;
  const T* dy;
  const T* x;
  template <int N>
  __device__ void run(std::int64_t i) const {
    const auto at_pack = load<N>(x + i);
    auto pack = load<N>(dy + i);
    for (int k = 0; k < N; ++k) {
      const float at = to_float(at_pack.v[k]);
      const float e = gate_exponential(at);
      const float s = 1.0F / (1.0F + e);
      const float slope = two_slope * (1.0F + 3.0F * cubic * at * at);
      // s(1 - s) = e s s. Far from zero it vanishes before the slope can overflow against it.
      const float bend = at * at < 1.0e3F ? at * (e * s) * s * slope : 0.0F;
      pack.v[k] = from_float<T>(to_float(pack.v[k]) * (s + bend));
    }
    store<N>(dx + i, pack);
  }
};

/// y = x · mask.
template <class T>
struct Dropped {
  T* y;
  const T* x;
  std::int64_t columns;
  Dropout dropout;
  template <int N>
  __device__ void run(std::int64_t i) const {
    auto pack = load<N>(x + i);
    float values[N];
    for (int k = 0; k < N; ++k) values[k] = to_float(pack.v[k]);
    if (dropout.active())
      drop<N>(values, dropout, static_cast<std::uint64_t>(i / columns),
              static_cast<std::uint64_t>(i % columns));
    for (int k = 0; k < N; ++k) pack.v[k] = from_float<T>(values[k]);
    store<N>(y + i, pack);
  }
};

struct Add {
  float* sum;
  const float* term;
  template <int N>
  __device__ void run(std::int64_t i) const {
    auto pack = load<N>(sum + i);
    const auto other = load<N>(term + i);
    for (int k = 0; k < N; ++k) pack.v[k] += other.v[k];
    store<N>(sum + i, pack);
  }
};

template <class To, class From>
struct Cast {
  To* to;
  const From* from;
  template <int N>
  __device__ void run(std::int64_t i) const {
    const auto in = load<N>(from + i);
    Pack<To, N> out;
    for (int k = 0; k < N; ++k) out.v[k] = from_float<To>(to_float(in.v[k]));
    store<N>(to + i, out);
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
  const T* dy;
  std::int64_t columns;
  template <int N>
  __device__ void add(float (&sums)[1][N], std::int64_t row, std::int64_t column) const {
    const auto pack = load<N>(dy + row * columns + column);
    for (int k = 0; k < N; ++k) sums[0][k] += to_float(pack.v[k]);
  }
};

}  // namespace

template <class T>
void gelu_forward(T* y, const T* x, std::int64_t count, RawStream stream) {
  loop<pack_elements<T>>("gelu_forward", GeluForward<T>{y, x}, count, aligned(y, x), stream);
}

template <class T>
void gelu_backward(T* dx, const T* dy, const T* x, std::int64_t count, RawStream stream) {
  loop<pack_elements<T>>("gelu_backward", GeluBackward<T>{dx, dy, x}, count, aligned(dx, dy, x),
                         stream);
}

template <class T>
void dropout_backward(T* dbranch,
                      const T* dy,
                      std::int64_t rows,
                      std::int64_t columns,
                      const Dropout& d,
                      RawStream stream) {
  loop<pack_elements<T>>("dropout_backward", Dropped<T>{dbranch, dy, columns, d}, rows * columns,
                         aligned(dbranch, dy) && columns % pack_elements<T> == 0, stream);
}

template <class T>
void bias_backward(float* db,
                   const T* dy,
                   std::int64_t rows,
                   std::int64_t columns,
                   std::byte* workspace,
                   std::size_t workspace_bytes,
                   RawStream stream) {
  float* const to[1] = {db};
  add_column_sums<1, pack_elements<T>>("bias_backward", BiasTerms<T>{dy, columns}, to, rows,
                                       columns, aligned(dy) && columns % pack_elements<T> == 0,
                                       workspace, workspace_bytes, stream);
}

void add(float* sum, const float* term, std::int64_t count, RawStream stream) {
  loop<4>("add", Add{sum, term}, count, aligned(sum, term), stream);
}

template <class To, class From>
void cast(To* to, const From* from, std::int64_t count, RawStream stream) {
  constexpr int width =
      pack_elements < To >> pack_elements<From> ? pack_elements<To> : pack_elements<From>;
  loop<width>("cast", Cast<To, From>{to, from}, count, aligned(to, from), stream);
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

#define TRIREME_INSTANTIATE(T)                                                              \
  template void gelu_forward(T*, const T*, std::int64_t, RawStream);                        \
  template void gelu_backward(T*, const T*, const T*, std::int64_t, RawStream);             \
  template void dropout_backward(T*, const T*, std::int64_t, std::int64_t, const Dropout&,  \
                                 RawStream);                                                \
  template void bias_backward(float*, const T*, std::int64_t, std::int64_t, std::byte*,     \
                              std::size_t, RawStream);                                      \
  template void cast(T*, const float*, std::int64_t, RawStream);                            \
  template void cast(T*, const Bf16*, std::int64_t, RawStream);                             \
  template void spread_bias(T*, const float*, std::int64_t, std::int64_t, bool, RawStream); \
  template void spread_bias(T*, const Bf16*, std::int64_t, std::int64_t, bool, RawStream);
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(Bf16)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::ops::cuda
