// SPDX-License-Identifier: Apache-2.0
// The norm of heads and their rotation sixteen channels at a time: rows forward and backward, and
// the sums of the gains' gradients over rows. A head is taken as two halves, which the rotation
// mixes; without one they stay apart. Contract and formulas: ops/head_norm.hpp.
//
// Shapes: a packed row begins with [heads, channels], heads of queries first; raw = those before
// the norm; rstd = [rows, heads]; angles of a row = [cosines of half, sines of half].
//
// 1. The sum of a head runs over lanes of sixteen channels in order, then over the lanes: it
//    depends on `channels` alone.
// 2. Channels beyond the half are read as zero (`keep`) and never written, so a half need not be a
//    multiple of sixteen.
// 3. Rows are independent of each other; the caller divides them among threads. Sums over rows
//    (sum_gain_terms) are of a run of rows that does not depend on the number of threads.
#pragma once

#include <algorithm>
#include <cmath>

#include "ops/cpu/x86/avx512_math.hpp"
#include "ops/head_norm.hpp"

namespace trireme::ops::cpu::avx512 {

/// Channels j to j + 16 of both halves of a head.
struct Halves {
  __m512 first, second;
};

template <class T>
TRIREME_AVX512_INLINE Halves
load_halves(const T* head, std::int64_t j, std::int64_t half, __mmask16 keep) {
  return {load_floats(head + j, keep), load_floats(head + half + j, keep)};
}

/// Ones without gains.
template <class T>
TRIREME_AVX512_INLINE Halves
load_head_gains(const T* gain, std::int64_t j, std::int64_t half, __mmask16 keep) {
  const __m512 one = _mm512_set1_ps(1.0F);
  return gain != nullptr ? load_halves(gain, j, half, keep) : Halves{one, one};
}

/// By the angles of a row, cosines first; null: not at all.
template <bool back>
TRIREME_AVX512_INLINE Halves turn_halves(
    const Halves& x, const float* angles, std::int64_t j, std::int64_t half, __mmask16 keep) {
  if (angles == nullptr)
    return x;
  const __m512 c = load_floats(angles + j, keep), s = load_floats(angles + half + j, keep);
  if constexpr (back)
    return {_mm512_fmadd_ps(x.second, s, _mm512_mul_ps(x.first, c)),
            _mm512_fnmadd_ps(x.first, s, _mm512_mul_ps(x.second, c))};
  else
    return {_mm512_fnmadd_ps(x.second, s, _mm512_mul_ps(x.first, c)),
            _mm512_fmadd_ps(x.first, s, _mm512_mul_ps(x.second, c))};
}

/// One row in place: y = rotate(x s gain) with s = 1 / sqrt(mean(x^2) + epsilon). Where `raw` is
/// not null, x and s are kept there and in `rstd` for backward; the copy is made before x is
/// overwritten.
template <class T>
TRIREME_AVX512 void norm_heads(
    T* row, T* raw, float* rstd, const float* angles, const HeadNorm& all) {
  const std::int64_t channels = all.channels(), half = channels / 2;
  for (std::int64_t h = 0; h < all.heads(); ++h) {
    T* head = row + h * channels;
    __m512 squares = _mm512_setzero_ps();
    for (std::int64_t c = 0; c < channels; c += lanes) {
      const __mmask16 keep = first_lanes(channels - c);
      const __m512 x = load_floats(head + c, keep);
      squares = _mm512_fmadd_ps(x, x, squares);
    }
    const float mean = _mm512_reduce_add_ps(squares) / static_cast<float>(channels);
    const float s = 1.0F / std::sqrt(mean + all.epsilon);
    if (raw != nullptr) {
      std::copy(head, head + channels, raw + h * channels);
      rstd[h] = s;
    }
    const __m512 scale = _mm512_set1_ps(s);
    for (std::int64_t j = 0; j < half; j += lanes) {
      const __mmask16 keep = first_lanes(half - j);
      const Halves x = load_halves(head, j, half, keep);
      const Halves gain = load_head_gains(all.gain_of<T>(h), j, half, keep);
      const Halves y =
          turn_halves<false>({_mm512_mul_ps(_mm512_mul_ps(x.first, scale), gain.first),
                              _mm512_mul_ps(_mm512_mul_ps(x.second, scale), gain.second)},
                             angles, j, half, keep);
      store_floats(head + j, y.first, keep);
      store_floats(head + half + j, y.second, keep);
    }
  }
}

/// One row in place: dx = s (u - xhat mean(u xhat)) with u = dz gain, xhat = x s, and dz the
/// gradient turned back. u is computed twice rather than kept: it takes no memory, and the second
/// pass finds its operands in the first-level cache.
template <class T>
TRIREME_AVX512 void norm_heads_backward(
    T* d_row, const T* raw, const float* rstd, const float* angles, const HeadNorm& all) {
  const std::int64_t channels = all.channels(), half = channels / 2;
  for (std::int64_t h = 0; h < all.heads(); ++h) {
    T* d = d_row + h * channels;
    const T* from = raw + h * channels;
    const T* gain = all.gain_of<T>(h);
    const __m512 s = _mm512_set1_ps(rstd[h]);
    const auto gradient = [&](std::int64_t j, __mmask16 keep) TRIREME_AVX512
        __attribute__((always_inline)) {
      const Halves dz = turn_halves<true>(load_halves(d, j, half, keep), angles, j, half, keep);
      const Halves g = load_head_gains(gain, j, half, keep);
      return Halves{_mm512_mul_ps(dz.first, g.first), _mm512_mul_ps(dz.second, g.second)};
    };
    __m512 products = _mm512_setzero_ps();
    for (std::int64_t j = 0; j < half; j += lanes) {
      const __mmask16 keep = first_lanes(half - j);
      const Halves u = gradient(j, keep), x = load_halves(from, j, half, keep);
      products = _mm512_fmadd_ps(u.first, _mm512_mul_ps(x.first, s), products);
      products = _mm512_fmadd_ps(u.second, _mm512_mul_ps(x.second, s), products);
    }
    const __m512 mean =
        _mm512_set1_ps(_mm512_reduce_add_ps(products) / static_cast<float>(channels));
    for (std::int64_t j = 0; j < half; j += lanes) {
      const __mmask16 keep = first_lanes(half - j);
      const Halves u = gradient(j, keep), x = load_halves(from, j, half, keep);
      store_floats(d + j,
                   _mm512_mul_ps(s, _mm512_fnmadd_ps(_mm512_mul_ps(x.first, s), mean, u.first)),
                   keep);
      store_floats(d + half + j,
                   _mm512_mul_ps(s, _mm512_fnmadd_ps(_mm512_mul_ps(x.second, s), mean, u.second)),
                   keep);
    }
  }
}

/// The sums of dz xhat over rows [begin, end) and heads [head, last_head), of the channels j to
/// j + 16 of both halves, of which `count` exist. `first` and `second` are overwritten, 16 fp32
/// each.
template <class T>
TRIREME_AVX512 void sum_gain_terms(float* first,
                                   float* second,
                                   const T* d_packed,
                                   const T* raw,
                                   const float* rstd,
                                   const HeadNorm& all,
                                   std::int64_t begin,
                                   std::int64_t end,
                                   std::int64_t head,
                                   std::int64_t last_head,
                                   std::int64_t j,
                                   std::int64_t count) {
  const std::int64_t channels = all.channels(), half = channels / 2;
  const __mmask16 keep = first_lanes(count);
  Halves sum{_mm512_setzero_ps(), _mm512_setzero_ps()};
  for (std::int64_t r = begin; r < end; ++r) {
    const float* angles = all.angles_of(r);
    const T* d = d_packed + r * all.shape.stride;
    const T* x = raw + r * all.heads() * channels;
    for (std::int64_t h = head; h < last_head; ++h) {
      const Halves dz =
          turn_halves<true>(load_halves(d + h * channels, j, half, keep), angles, j, half, keep);
      const Halves at = load_halves(x + h * channels, j, half, keep);
      const __m512 s = _mm512_set1_ps(rstd[r * all.heads() + h]);
      sum.first = _mm512_fmadd_ps(dz.first, _mm512_mul_ps(at.first, s), sum.first);
      sum.second = _mm512_fmadd_ps(dz.second, _mm512_mul_ps(at.second, s), sum.second);
    }
  }
  _mm512_storeu_ps(first, sum.first);
  _mm512_storeu_ps(second, sum.second);
}

}  // namespace trireme::ops::cpu::avx512
