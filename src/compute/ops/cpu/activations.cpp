// SPDX-License-Identifier: Apache-2.0
#include "ops/activations.hpp"

#include <vector>

#include "ops/cpu/levels.hpp"
#include "ops/cpu/x86/amx_matmul.hpp"

#define TRIREME_KERNELS "ops/cpu/gelu_kernels.hpp"
#include "ops/cpu/for_each_level.hpp"

namespace trireme::ops::cpu {
namespace {

#if defined(__x86_64__)
/// The results of avx512::gelu_forward() and gelu_backward() for each of the 65536 bf16 values, in
/// fp32, indexed by the value's bits. If gathers are fast, as on processors with AMX, the look-up
/// takes about half of the time of the computation; activations use a few KiB of the table.
struct GeluTables {
  std::vector<float> value = std::vector<float>(1U << 16U), derivative = value;

  GeluTables() {
    const auto count = static_cast<std::int64_t>(value.size());
    std::vector<float> x, ones(value.size(), 1.0F);
    for (std::uint32_t bits = 0; bits < value.size(); ++bits)
      x.push_back(std::bit_cast<float>(bits << 16U));
    avx512::gelu_forward(value.data(), x.data(), count);
    avx512::gelu_backward(derivative.data(), ones.data(), x.data(), count);
  }
  static const GeluTables& get() {
    static const GeluTables tables;
    return tables;
  }
};

TRIREME_AVX512_INLINE __m512 look_up(const float* table, const Bf16* at, __mmask16 keep) {
  const __m512 wide = avx512::load_floats(at, keep);
  return _mm512_i32gather_ps(_mm512_srli_epi32(_mm512_castps_si512(wide), 16), table, 4);
}

TRIREME_AVX512 void gelu_forward_by_table(Bf16* y, const Bf16* x, std::int64_t count) {
  const float* table = GeluTables::get().value.data();
  avx512::for_lanes(
      y, count, [&](std::int64_t i, __mmask16 keep) TRIREME_AVX512 __attribute__((always_inline)) {
        return look_up(table, x + i, keep);
      });
}

TRIREME_AVX512 void gelu_backward_by_table(Bf16* dx,
                                           const Bf16* dy,
                                           const Bf16* x,
                                           std::int64_t count) {
  const float* table = GeluTables::get().derivative.data();
  avx512::for_lanes(
      dx, count, [&](std::int64_t i, __mmask16 keep) TRIREME_AVX512 __attribute__((always_inline)) {
        return _mm512_mul_ps(avx512::load_floats(dy + i, keep), look_up(table, x + i, keep));
      });
}
#endif

template <class T>
TRIREME_CLONES void squared_relu_kernel(T* y, const T* x, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) {
    const float at = to_float(x[i]);
    y[i] = from_float<T>(at < 0 ? 0.0F : at * at);  // keeps NaN
  }
}

template <class T>
TRIREME_CLONES void squared_relu_backward_kernel(T* dx,
                                                 const T* dy,
                                                 const T* x,
                                                 std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) {
    const float at = to_float(x[i]);
    dx[i] = from_float<T>(to_float(dy[i]) * (at < 0 ? 0.0F : 2.0F * at));
  }
}

template <class T>
TRIREME_CLONES void swiglu_kernel(T* y, const T* gate, const T* up, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) {
    const float g = to_float(gate[i]);
    y[i] = from_float<T>(g / (1.0F + fast_exp(-g)) * to_float(up[i]));
  }
}

template <class T>
TRIREME_CLONES void swiglu_backward_kernel(
    T* dgate, T* dup, const T* dy, const T* gate, const T* up, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) {
    const float g = to_float(gate[i]), d = to_float(dy[i]);
    const float e = fast_exp(-g);
    const float s = 1.0F / (1.0F + e);
    // silu' = s (1 + g (1 - s)) with 1 - s = e s.
    dgate[i] = from_float<T>(d * to_float(up[i]) * (s * (1.0F + g * (e * s))));
    dup[i] = from_float<T>(d * (g * s));
  }
}

/// kernel(y, x, elements) for chunks of y = f(x).
template <class T>
void map(const ActivationForward& call, void (*kernel)(T*, const T*, std::int64_t)) {
  for_chunks(call.x.elements, elements_per_chunk, [&](std::int64_t begin, std::int64_t end) {
    kernel(call.y.as<T>() + begin, call.x.as<T>() + begin, end - begin);
  });
}
/// kernel(dx, dy, x, elements) for chunks of dx = dy f'(x).
template <class T>
void gradient(const ActivationBackward& call,
              void (*kernel)(T*, const T*, const T*, std::int64_t)) {
  for_chunks(call.x.elements, elements_per_chunk, [&](std::int64_t begin, std::int64_t end) {
    kernel(call.dx.as<T>() + begin, call.dy.as<T>() + begin, call.x.as<T>() + begin, end - begin);
  });
}

}  // namespace

template <class T>
void run(Threads, const ActivationForward& call) {
  if (call.function == Activation::squared_relu)
    return map<T>(call, squared_relu_kernel<T>);
  if (call.function == Activation::gelu) {
    auto* kernel = TRIREME_BEST(gelu_forward<T>);
#if defined(__x86_64__)
    if constexpr (std::is_same_v<T, Bf16>)
      if (amx::available())
        kernel = gelu_forward_by_table;
#endif
    return map<T>(call, kernel);
  }
  const std::int64_t columns = call.columns;
  for_rows(call.y.elements / columns, columns, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const T* gate = call.x.as<T>() + 2 * r * columns;
      swiglu_kernel(call.y.as<T>() + r * columns, gate, gate + columns, columns);
    }
  });
}

template <class T>
void run(Threads, const ActivationBackward& call) {
  if (call.function == Activation::squared_relu)
    return gradient<T>(call, squared_relu_backward_kernel<T>);
  if (call.function == Activation::gelu) {
    auto* kernel = TRIREME_BEST(gelu_backward<T>);
#if defined(__x86_64__)
    if constexpr (std::is_same_v<T, Bf16>)
      if (amx::available())
        kernel = gelu_backward_by_table;
#endif
    return gradient<T>(call, kernel);
  }
  const std::int64_t columns = call.columns;
  for_rows(call.dy.elements / columns, columns, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const T* gate = call.x.as<T>() + 2 * r * columns;
      T* to = call.dx.as<T>() + 2 * r * columns;
      swiglu_backward_kernel(to, to + columns, call.dy.as<T>() + r * columns, gate, gate + columns,
                             columns);
    }
  });
}

TRIREME_CPU_BODIES(ActivationForward);
TRIREME_CPU_BODIES(ActivationBackward);

}  // namespace trireme::ops::cpu
