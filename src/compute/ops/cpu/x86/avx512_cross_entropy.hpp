// SPDX-License-Identifier: Apache-2.0
// Cross-entropy of logits without a cap, by AVX-512. A row is read three times: for its largest
// logit, for the sum of exponentials, and for the gradient. A row of a vocabulary of 50304 is 200
// KB of fp32, so only the first time it comes from beyond the second-level cache.
//
// The portable loops (cross_entropy.cpp) serve logits with a cap and other processors.
//
// 1. Both functions give the same losses, to the bit.
// 2. Gradients of more than 16384 columns bypass the caches, where their rows
//    begin at cache lines: a store through the caches would first read each line from memory.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/cpu/loops.hpp"
#include "ops/cpu/x86/avx512_math.hpp"
#include "ops/cross_entropy.hpp"

namespace trireme::ops::cpu::avx512 {

/// e^x for x <= 0, within 3 units in the last place; 0 below -104; NaN stays NaN. log2(e) is used
/// in two parts, so that far from 0 no digits are lost.
TRIREME_AVX512_INLINE __m512 exponential_below_one(__m512 x) {
  const __m512 at = _mm512_max_ps(_mm512_set1_ps(-200.0F), x);
  const __m512 high = _mm512_set1_ps(1.44269504F), low = _mm512_set1_ps(1.92596299e-8F);
  const __m512 n =
      _mm512_roundscale_ps(_mm512_mul_ps(at, high), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m512 r = _mm512_fmadd_ps(at, low, _mm512_fmsub_ps(at, high, n));
  return _mm512_scalef_ps(power_of_two_near_zero(r), n);
}

template <class T>
TRIREME_AVX512_INLINE __m512 difference(const T* x, __mmask16 keep, __m512 from) {
  return _mm512_sub_ps(load_floats(x, keep), from);
}

/// What losses and gradients of a row are made of.
struct RowSums {
  float largest, exponentials;
};

/// Partial sums of 512 are added up, so that large vocabularies keep their digits.
template <class T>
TRIREME_AVX512_INLINE RowSums sums_of_row(const T* row, std::int64_t V) {
  constexpr __mmask16 all = 0xffff;
  constexpr std::int64_t at_once = 4 * lanes, together = 8 * at_once;
  __m512 most[4];
  for (__m512& one : most) one = _mm512_set1_ps(-std::numeric_limits<float>::infinity());
  std::int64_t v = 0;
  for (; v + at_once <= V; v += at_once)
#pragma GCC unroll 4
    for (std::int64_t r = 0; r < 4; ++r)  // NaN count for nothing
      most[r] = _mm512_max_ps(load_floats(row + v + r * lanes, all), most[r]);
  for (; v < V; v += lanes) {
    const __mmask16 keep = first_lanes(V - v);
    most[0] = _mm512_mask_max_ps(most[0], keep, load_floats(row + v, keep), most[0]);
  }
  const float largest = _mm512_reduce_max_ps(
      _mm512_max_ps(_mm512_max_ps(most[0], most[1]), _mm512_max_ps(most[2], most[3])));

  const __m512 from = _mm512_set1_ps(largest);
  __m512 total = _mm512_setzero_ps();
  for (std::int64_t begin = 0; begin < V; begin += together) {
    const std::int64_t end = std::min(V, begin + together);
    __m512 sum[4];
    for (__m512& one : sum) one = _mm512_setzero_ps();
    for (v = begin; v + at_once <= end; v += at_once)
#pragma GCC unroll 4
      for (std::int64_t r = 0; r < 4; ++r)
        sum[r] = _mm512_add_ps(sum[r],
                               exponential_below_one(difference(row + v + r * lanes, all, from)));
    for (; v < end; v += lanes) {
      const __mmask16 keep = first_lanes(end - v);
      sum[0] = _mm512_mask_add_ps(sum[0], keep, sum[0],
                                  exponential_below_one(difference(row + v, keep, from)));
    }
    total = _mm512_add_ps(
        total, _mm512_add_ps(_mm512_add_ps(sum[0], sum[1]), _mm512_add_ps(sum[2], sum[3])));
  }
  return {largest, _mm512_reduce_add_ps(total)};
}

template <class T>
TRIREME_AVX512 void cross_entropy_forward(float* losses,
                                          const T* logits,
                                          const std::int32_t* targets,
                                          const LossTerms* /*terms*/,
                                          std::int64_t rows,
                                          std::int64_t V) {
  for (std::int64_t r = 0; r < rows; ++r, logits += V) {
    losses[r] = 0;
    if (targets[r] < 0)
      continue;
    const RowSums sums = sums_of_row(logits, V);
    losses[r] = std::log(sums.exponentials) - (to_float(logits[targets[r]]) - sums.largest);
  }
}

TRIREME_AVX512_INLINE void stream_pair(float* to, __m512 low, __m512 high) {
  _mm512_stream_ps(to, low);
  _mm512_stream_ps(to + lanes, high);
}
TRIREME_AVX512_INLINE void stream_pair(Bf16* to, __m512 low, __m512 high) {
  _mm512_stream_si512(reinterpret_cast<__m512i*>(to), to_bf16(low, high));
}

/// gradient = factor · e^(logit - largest).
template <bool around_caches, class T, class D>
TRIREME_AVX512_INLINE void gradient_of_row(
    D* gradient, const T* row, float largest, float factor, std::int64_t V) {
  constexpr __mmask16 all = 0xffff;
  constexpr std::int64_t at_once = 4 * lanes;
  const __m512 from = _mm512_set1_ps(largest), times = _mm512_set1_ps(factor);
  std::int64_t v = 0;
  for (; v + at_once <= V; v += at_once) {
    __m512 made[4];
#pragma GCC unroll 4
    for (std::int64_t r = 0; r < 4; ++r)
      made[r] =
          _mm512_mul_ps(exponential_below_one(difference(row + v + r * lanes, all, from)), times);
#pragma GCC unroll 2
    for (std::int64_t r = 0; r < 4; r += 2)
      if constexpr (around_caches)
        stream_pair(gradient + v + r * lanes, made[r], made[r + 1]);
      else
        store_pair(gradient + v + r * lanes, made[r], made[r + 1]);
  }
  for (; v < V; v += lanes) {
    const __mmask16 keep = first_lanes(V - v);
    store_floats(gradient + v,
                 _mm512_mul_ps(exponential_below_one(difference(row + v, keep, from)), times),
                 keep);
  }
  if constexpr (around_caches)
    _mm_sfence();  // before the store of the target's gradient, and before other threads read
}

template <class T, class D>
TRIREME_AVX512 void cross_entropy_forward_backward(float* losses,
                                                   D* gradient,
                                                   const T* logits,
                                                   const std::int32_t* targets,
                                                   const LossTerms* terms,
                                                   float scale,
                                                   std::int64_t rows,
                                                   std::int64_t V) {
  constexpr std::int64_t cached_elements = 16384;  // of a row; longer ones do not stay for the next
  const bool in_place = static_cast<const void*>(gradient) == logits;
  const bool around = !in_place && V > cached_elements &&
                      reinterpret_cast<std::uintptr_t>(gradient) % 64 == 0 &&
                      V * static_cast<std::int64_t>(sizeof(D)) % 64 == 0;
  const float twice_z_loss = 2.0F * terms->z_loss;
  for (std::int64_t r = 0; r < rows; ++r, logits += V, gradient += V) {
    if (targets[r] < 0) {
      losses[r] = 0;
      std::fill(gradient, gradient + V, from_float<D>(0.0F));
      continue;
    }
    const RowSums sums = sums_of_row(logits, V);
    const float log_sum = std::log(sums.exponentials);
    const float difference = to_float(logits[targets[r]]) - sums.largest;
    losses[r] = log_sum - difference;
    float factor = scale / sums.exponentials;
    if (twice_z_loss > 0)
      factor *= 1.0F + twice_z_loss * (sums.largest + log_sum);
    if (around)
      gradient_of_row<true>(gradient, logits, sums.largest, factor, V);
    else
      gradient_of_row<false>(gradient, logits, sums.largest, factor, V);
    const float likelihood = _mm512_cvtss_f32(exponential_below_one(_mm512_set1_ps(difference)));
    gradient[targets[r]] = from_float<D>(likelihood * factor - scale);
  }
}

}  // namespace trireme::ops::cpu::avx512
