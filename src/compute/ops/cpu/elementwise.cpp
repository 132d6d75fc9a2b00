// SPDX-License-Identifier: Apache-2.0
#include "ops/elementwise.hpp"

#include <algorithm>
#include <array>

#include "base/round_up.hpp"

#include "ops/cpu/dropout.hpp"
#include "ops/cpu/loops.hpp"
#if defined(__x86_64__)
#include "ops/cpu/x86/avx512_math.hpp"
#endif

namespace trireme::ops::cpu {
namespace {

// tanh(u) = 2 sigmoid(2u) - 1, so 0.5 x (1 + tanh(u)) = x sigmoid(2u) with u = sqrt(2/pi) (x +
// 0.044715 x^3).
constexpr float two_slope = 1.59576912161F;  // 2 sqrt(2/pi)
constexpr float cubic = 0.044715F;

/// e^(-2u): sigmoid(2u) is 1 / (1 + it).
TRIREME_INLINE float gate_exponential(float x) {
  return fast_exp(-two_slope * (x + cubic * x * x * x));
}

template <class T>
TRIREME_CLONES_BELOW_AVX512 void gelu_forward_kernel(T* y, const T* x, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) {
    const float at = to_float(x[i]);
    y[i] = from_float<T>(at / (1.0F + gate_exponential(at)));
  }
}

template <class T>
TRIREME_CLONES_BELOW_AVX512 void gelu_backward_kernel(T* dx,
                                                      const T* dy,
                                                      const T* x,
                                                      std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) {
    const float at = to_float(x[i]);
    const float e = gate_exponential(at);
    const float s = 1.0F / (1.0F + e);
    const float slope = two_slope * (1.0F + 3.0F * cubic * at * at);
    // s(1 - s) = e s s. Far from zero it vanishes before the slope can overflow against it.
    const float bend = at * at < 1.0e3F ? at * (e * s) * s * slope : 0.0F;
    dx[i] = from_float<T>(to_float(dy[i]) * (s + bend));
  }
}

#if defined(__x86_64__)
/// e^(-2u), sixteen times, as a power of two; it stays finite, so far from 1 that what lies further
/// would change nothing.
TRIREME_AVX512_INLINE __m512 gate_exponential(__m512 x) {
  constexpr float log2_e = 1.44269504F;
  const __m512 factor = _mm512_fmadd_ps(_mm512_set1_ps(-two_slope * cubic * log2_e),
                                        _mm512_mul_ps(x, x), _mm512_set1_ps(-two_slope * log2_e));
  const __m512 exponent = _mm512_max_ps(_mm512_set1_ps(-126.0F), _mm512_mul_ps(x, factor));
  return avx512::power_of_two(_mm512_min_ps(_mm512_set1_ps(126.0F), exponent));  // NaN stays
}

TRIREME_AVX512_INLINE __m512 gelu(__m512 x) {
  const __m512 gate = avx512::reciprocal(_mm512_add_ps(_mm512_set1_ps(1.0F), gate_exponential(x)));
  return _mm512_mul_ps(x, gate);
}

TRIREME_AVX512_INLINE __m512 gelu_derivative(__m512 x) {
  const __m512 squared = _mm512_mul_ps(x, x);
  const __m512 e = gate_exponential(x);
  const __m512 s = avx512::reciprocal(_mm512_add_ps(_mm512_set1_ps(1.0F), e));
  const __m512 slope =
      _mm512_fmadd_ps(_mm512_set1_ps(3.0F * cubic * two_slope), squared, _mm512_set1_ps(two_slope));
  const __m512 bend = _mm512_mul_ps(_mm512_mul_ps(x, _mm512_mul_ps(e, s)), _mm512_mul_ps(s, slope));
  const __mmask16 near = _mm512_cmp_ps_mask(squared, _mm512_set1_ps(1.0e3F), _CMP_NGE_UQ);
  return _mm512_mask_add_ps(s, near, s, bend);
}

/// Numbers of one pass of the loops below: four registers, whose long chains of operations overlap.
constexpr std::int64_t gelu_at_once = 4 * avx512::lanes;

template <class T>
TRIREME_AVX512 void gelu_forward_avx512(T* y, const T* x, std::int64_t count) {
  constexpr __mmask16 all = 0xffff;
  std::int64_t i = 0;
  for (; i + gelu_at_once <= count; i += gelu_at_once) {
    __m512 made[4];
#pragma GCC unroll 4
    for (std::int64_t r = 0; r < 4; ++r)
      made[r] = gelu(avx512::load_floats(x + i + r * avx512::lanes, all));
    avx512::store_pair(y + i, made[0], made[1]);
    avx512::store_pair(y + i + 2 * avx512::lanes, made[2], made[3]);
  }
  for (; i < count; i += avx512::lanes) {
    const __mmask16 keep = avx512::first_lanes(count - i);
    avx512::store_floats(y + i, gelu(avx512::load_floats(x + i, keep)), keep);
  }
}

template <class T>
TRIREME_AVX512_INLINE __m512
gelu_gradient(const T* dy, const T* x, std::int64_t at, __mmask16 keep) {
  return _mm512_mul_ps(avx512::load_floats(dy + at, keep),
                       gelu_derivative(avx512::load_floats(x + at, keep)));
}

template <class T>
TRIREME_AVX512 void gelu_backward_avx512(T* dx, const T* dy, const T* x, std::int64_t count) {
  constexpr __mmask16 all = 0xffff;
  std::int64_t i = 0;
  for (; i + gelu_at_once <= count; i += gelu_at_once) {
    __m512 made[4];
#pragma GCC unroll 4
    for (std::int64_t r = 0; r < 4; ++r) made[r] = gelu_gradient(dy, x, i + r * avx512::lanes, all);
    avx512::store_pair(dx + i, made[0], made[1]);
    avx512::store_pair(dx + i + 2 * avx512::lanes, made[2], made[3]);
  }
  for (; i < count; i += avx512::lanes) {
    const __mmask16 keep = avx512::first_lanes(count - i);
    avx512::store_floats(dx + i, gelu_gradient(dy, x, i, keep), keep);
  }
}
#endif

template <class T>
TRIREME_CLONES void dropout_kernel(T* dbranch,
                                   const T* dy,
                                   std::int64_t row,
                                   std::int64_t first,
                                   std::int64_t count,
                                   const Dropout* dropout) {
  DropoutRun run;
  for (std::int64_t begin = 0; begin < count; begin += dropout_run_elements) {
    const std::int64_t n = std::min(dropout_run_elements, count - begin);
    const float* factors = dropout_run(run, *dropout, row, first + begin, n);
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i)
      dbranch[begin + i] = from_float<T>(to_float(dy[begin + i]) * factors[i]);
  }
}

constexpr std::int64_t columns_per_piece = 256;
constexpr std::int64_t rows_per_sum = 64;

/// Sums of 64 rows are added up, so the error grows with rows / 64.
template <class T>
TRIREME_CLONES void bias_kernel(
    float* db, const T* dy, std::int64_t rows, std::int64_t columns, std::int64_t count) {
  alignas(64) std::array<float, columns_per_piece> total{};
  for (std::int64_t begin = 0; begin < rows; begin += rows_per_sum) {
    alignas(64) std::array<float, columns_per_piece> sum{};
    const std::int64_t end = std::min(rows, begin + rows_per_sum);
    if (count == columns_per_piece) {
      for (std::int64_t r = begin; r < end; ++r)
#pragma omp simd
        for (std::int64_t c = 0; c < columns_per_piece; ++c)
          sum[static_cast<std::size_t>(c)] += to_float(dy[r * columns + c]);
    } else {
      for (std::int64_t r = begin; r < end; ++r)
        for (std::int64_t c = 0; c < count; ++c)
          sum[static_cast<std::size_t>(c)] += to_float(dy[r * columns + c]);
    }
    for (std::size_t c = 0; c < columns_per_piece; ++c) total[c] += sum[c];
  }
  for (std::int64_t c = 0; c < count; ++c) db[c] += total[static_cast<std::size_t>(c)];
}

TRIREME_CLONES void add_kernel(float* sum, const float* term, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) sum[i] += term[i];
}

template <class To, class From>
TRIREME_CLONES void cast_kernel(To* to, const From* from, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) to[i] = from_float<To>(to_float(from[i]));
}

/// Calls body(row, begin, end) for pieces of each row.
template <class Body>
void for_pieces(std::int64_t rows, std::int64_t columns, const Body& body) {
  const std::int64_t pieces = divided_up(columns, elements_per_chunk);
  // Short rows travel together.
  const std::int64_t together =
      pieces > 1 ? 1 : std::max<std::int64_t>(1, elements_per_chunk / columns);
  for_chunks(rows * pieces, together, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t first = i % pieces * elements_per_chunk;
      body(i / pieces, first, std::min(columns, first + elements_per_chunk));
    }
  });
}

}  // namespace

template <class T>
void run(Threads, const GeluForward& call) {
  for_chunks(call.x.elements, elements_per_chunk, [=](std::int64_t begin, std::int64_t end) {
    T* y = call.y.as<T>() + begin;
    const T* x = call.x.as<T>() + begin;
#if defined(__x86_64__)
    if (has_avx512()) {
      gelu_forward_avx512(y, x, end - begin);
      return;
    }
#endif
    gelu_forward_kernel(y, x, end - begin);
  });
}

template <class T>
void run(Threads, const GeluBackward& call) {
  for_chunks(call.x.elements, elements_per_chunk, [=](std::int64_t begin, std::int64_t end) {
    T* dx = call.dx.as<T>() + begin;
    const T* dy = call.dy.as<T>() + begin;
    const T* x = call.x.as<T>() + begin;
#if defined(__x86_64__)
    if (has_avx512()) {
      gelu_backward_avx512(dx, dy, x, end - begin);
      return;
    }
#endif
    gelu_backward_kernel(dx, dy, x, end - begin);
  });
}

template <class T>
void run(Threads where, const DropoutBackward& call) {
  if (!call.dropout.active()) {
    run<T>(where, Cast{.to = call.dbranch, .from = call.dy});
    return;
  }
  const std::int64_t columns = call.elements_per_sample;
  for_pieces(call.dy.elements / columns, columns,
             [&](std::int64_t row, std::int64_t begin, std::int64_t end) {
               const std::int64_t at = row * columns + begin;
               dropout_kernel(call.dbranch.as<T>() + at, call.dy.as<T>() + at, row, begin,
                              end - begin, &call.dropout);
             });
}

template <class T>
void run(Threads, const BiasBackward& call) {
  const std::int64_t columns = call.db.elements;
  for_chunks(columns, columns_per_piece, [=](std::int64_t begin, std::int64_t end) {
    bias_kernel(call.db.as<float>() + begin, call.dy.as<T>() + begin, call.rows(), columns,
                end - begin);
  });
}

template <class T>
void run(Threads, const Add& call) {
  for_chunks(call.sum.elements, elements_per_chunk, [=](std::int64_t begin, std::int64_t end) {
    add_kernel(call.sum.as<T>() + begin, call.term.as<T>() + begin, end - begin);
  });
}

template <class To>
void run(Threads, const Cast& call) {
  for_chunks(call.to.elements, elements_per_chunk, [=](std::int64_t begin, std::int64_t end) {
    To* to = call.to.as<To>() + begin;
    if (call.from.dtype == DType::bf16)
      cast_kernel(to, call.from.as<Bf16>() + begin, end - begin);
    else
      cast_kernel(to, call.from.as<float>() + begin, end - begin);
  });
}

TRIREME_CPU_BODIES(GeluForward);
TRIREME_CPU_BODIES(GeluBackward);
TRIREME_CPU_BODIES(DropoutBackward);
TRIREME_CPU_BODIES(BiasBackward);
template void run<float>(Threads, const Add&);
TRIREME_CPU_BODIES(Cast);

}  // namespace trireme::ops::cpu
