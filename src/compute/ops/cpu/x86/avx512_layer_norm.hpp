// SPDX-License-Identifier: Apache-2.0
// Layer normalization sixteen channels at a time: rows forward and backward, and the sums of the
// parameters' gradients over rows. Contract and formulas: ops/layer_norm.hpp.
//
// Shapes: x, y, dx, dy = [rows, channels] of T; mean, rstd = [rows] fp32; gamma, beta = [channels]
// of T or null.
//
// 1. A row's mean and variance are two passes: squares of differences from the mean, which lose
//    nothing where the mean is large compared with the deviation. Sums run over lanes in order,
//    then over the lanes.
// 2. Null `mean`: nothing is subtracted (RMSNorm). Null `gamma` counts as ones, null `beta` as
//    zeros.
// 3. Lanes beyond the row are zero in every sum and are not written.
// 4. A row is read from memory once: the later passes find it in the cache, where a row of some
//    thousand channels fits.
#pragma once

#include "ops/cpu/x86/avx512_math.hpp"
#include "ops/layer_norm.hpp"

namespace trireme::ops::cpu::avx512 {

/// Ones without gains.
template <class T>
TRIREME_AVX512 inline __m512 load_gains(const T* gamma, std::int64_t c, __mmask16 keep) {
  return gamma != nullptr ? load_floats(gamma + c, keep) : _mm512_set1_ps(1.0F);
}

/// y = (x - mean) rstd gamma + beta of `rows` rows. Writes `mean`, unless it is null, and `rstd`.
template <class T>
TRIREME_AVX512 void normalize_rows(T* y,
                                   float* mean,
                                   float* rstd,
                                   const T* x,
                                   const T* gamma,
                                   const T* beta,
                                   std::int64_t rows,
                                   std::int64_t channels,
                                   float epsilon) {
  const float inverse = 1.0F / static_cast<float>(channels);
  for (std::int64_t r = 0; r < rows; ++r, x += channels, y += channels) {
    __m512 sum = _mm512_setzero_ps(), squares = _mm512_setzero_ps();
    float center = 0;
    if (mean != nullptr) {
      for (std::int64_t c = 0; c < channels; c += lanes)
        sum = _mm512_add_ps(sum, load_floats(x + c, first_lanes(channels - c)));
      center = mean[r] = _mm512_reduce_add_ps(sum) * inverse;
    }
    const __m512 m = _mm512_set1_ps(center);
    for (std::int64_t c = 0; c < channels; c += lanes) {
      const __mmask16 keep = first_lanes(channels - c);
      const __m512 d = _mm512_maskz_sub_ps(keep, load_floats(x + c, keep), m);
      squares = _mm512_fmadd_ps(d, d, squares);
    }
    rstd[r] = 1.0F / __builtin_sqrtf(_mm512_reduce_add_ps(squares) * inverse + epsilon);
    const __m512 s = _mm512_set1_ps(rstd[r]);
    for (std::int64_t c = 0; c < channels; c += lanes) {
      const __mmask16 keep = first_lanes(channels - c);
      const __m512 scale = _mm512_mul_ps(s, load_gains(gamma, c, keep));
      const __m512 d = _mm512_sub_ps(load_floats(x + c, keep), m);
      const __m512 shift = beta != nullptr ? load_floats(beta + c, keep) : _mm512_setzero_ps();
      store_floats(y + c, _mm512_fmadd_ps(d, scale, shift), keep);
    }
  }
}

/// dx = (or +=) rstd (g - mean(g) - xhat mean(g xhat)) with g = dy gamma, xhat = (x - mean) rstd.
/// Without means, of x and of g.
template <class T>
TRIREME_AVX512 void normalize_rows_backward(const LayerNormBackward& call,
                                            std::int64_t begin,
                                            std::int64_t end) {
  const std::int64_t channels = call.channels;
  const bool accumulate = call.accumulate;
  const T* gamma = call.gamma.as_optional<T>();
  const float inverse = 1.0F / static_cast<float>(channels);
  for (std::int64_t r = begin; r < end; ++r) {
    const T* dy = call.dy.as<T>() + r * channels;
    const T* x = call.x.as<T>() + r * channels;
    T* to = call.dx.as<T>() + r * channels;
    const __m512 m = _mm512_set1_ps(call.mean_of(r)), s = _mm512_set1_ps(call.rstd.as<float>()[r]);
    __m512 sum = _mm512_setzero_ps(), product = _mm512_setzero_ps();
    for (std::int64_t c = 0; c < channels; c += lanes) {
      const __mmask16 keep = first_lanes(channels - c);
      const __m512 g = _mm512_mul_ps(load_floats(dy + c, keep), load_gains(gamma, c, keep));
      sum = _mm512_add_ps(sum, g);  // zero beyond the row
      product =
          _mm512_fmadd_ps(g, _mm512_mul_ps(_mm512_sub_ps(load_floats(x + c, keep), m), s), product);
    }
    const __m512 mean_g =
        call.centers() ? _mm512_set1_ps(_mm512_reduce_add_ps(sum) * inverse) : _mm512_setzero_ps();
    const __m512 mean_p = _mm512_set1_ps(_mm512_reduce_add_ps(product) * inverse);
    for (std::int64_t c = 0; c < channels; c += lanes) {
      const __mmask16 keep = first_lanes(channels - c);
      const __m512 g = _mm512_mul_ps(load_floats(dy + c, keep), load_gains(gamma, c, keep));
      const __m512 xhat = _mm512_mul_ps(_mm512_sub_ps(load_floats(x + c, keep), m), s);
      const __m512 inner = _mm512_fnmadd_ps(xhat, mean_p, _mm512_sub_ps(g, mean_g));
      const __m512 before = accumulate ? load_floats(to + c, keep) : _mm512_setzero_ps();
      store_floats(to + c, _mm512_fmadd_ps(s, inner, before), keep);
    }
  }
}

/// Adds to sums over rows [begin, end) of 32 columns, of which `count` exist: of dy xhat to
/// `scale`, of dy to `shift`, 32 fp32 each. 32 columns are a cache line of bf16 and two of fp32, so
/// walking down a column wastes none of what is fetched.
template <class T>
TRIREME_AVX512 void add_norm_rows(float* scale,
                                  float* shift,
                                  const LayerNormBackward& call,
                                  std::int64_t begin,
                                  std::int64_t end,
                                  std::int64_t column,
                                  std::int64_t count) {
  const std::int64_t channels = call.channels;
  const T* dy = call.dy.as<T>();
  const T* x = call.x.as<T>();
  const __mmask16 keep[2] = {first_lanes(count), first_lanes(count - lanes)};
  __m512 products[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
  __m512 sum[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
  for (std::int64_t r = begin; r < end; ++r) {
    const __m512 m = _mm512_set1_ps(call.mean_of(r)), s = _mm512_set1_ps(call.rstd.as<float>()[r]);
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const std::int64_t at = r * channels + column + half * lanes;
      const __m512 d = load_floats(dy + at, keep[half]);
      const __m512 xhat = _mm512_mul_ps(_mm512_sub_ps(load_floats(x + at, keep[half]), m), s);
      products[half] = _mm512_fmadd_ps(d, xhat, products[half]);
      sum[half] = _mm512_add_ps(sum[half], d);
    }
  }
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half) {
    float* to_scale = scale + half * lanes;
    float* to_shift = shift + half * lanes;
    _mm512_storeu_ps(to_scale, _mm512_add_ps(_mm512_loadu_ps(to_scale), products[half]));
    _mm512_storeu_ps(to_shift, _mm512_add_ps(_mm512_loadu_ps(to_shift), sum[half]));
  }
}

}  // namespace trireme::ops::cpu::avx512
