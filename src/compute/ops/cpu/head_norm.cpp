// SPDX-License-Identifier: Apache-2.0
// A head is some hundred elements, which stay in the first cache from pass to pass.
#include "ops/head_norm.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "ops/cpu/loops.hpp"
#if defined(__x86_64__)
#include "ops/cpu/x86/avx512_head_norm.hpp"
#endif

namespace trireme::ops::cpu {
namespace {

template <bool Gains, class T>
TRIREME_INLINE float gain_at(const T* gain, std::int64_t c) {
  if constexpr (Gains)
    return to_float(gain[c]);
  else
    return 1.0F;
}

/// x becomes rotate(x · s · gain); null `cosines`: no rotation.
template <bool Gains, class T>
TRIREME_INLINE void scale_head(
    T* x, float s, const T* gain, const float* cosines, std::int64_t channels) {
  if (cosines == nullptr) {
#pragma omp simd
    for (std::int64_t c = 0; c < channels; ++c)
      x[c] = from_float<T>(to_float(x[c]) * s * gain_at<Gains>(gain, c));
    return;
  }
  const std::int64_t half = channels / 2;
  const float* sines = cosines + half;
  T* second = x + half;
#pragma omp simd
  for (std::int64_t j = 0; j < half; ++j) {
    const float a = to_float(x[j]) * s * gain_at<Gains>(gain, j);
    const float b = to_float(second[j]) * s * gain_at<Gains>(gain, half + j);
    x[j] = from_float<T>(a * cosines[j] - b * sines[j]);
    second[j] = from_float<T>(b * cosines[j] + a * sines[j]);
  }
}

template <class T>
TRIREME_CLONES_BELOW_AVX512 void forward_row(
    T* row, T* raw, float* rstd, const float* cosines, const HeadNorm* all) {
  const std::int64_t channels = all->channels();
  for (std::int64_t h = 0; h < all->heads(); ++h) {
    T* x = row + h * channels;
    float squares = 0;
#pragma omp simd reduction(+ : squares)
    for (std::int64_t c = 0; c < channels; ++c) squares += to_float(x[c]) * to_float(x[c]);
    const float s = 1.0F / std::sqrt(squares / static_cast<float>(channels) + all->epsilon);
    if (raw != nullptr) {
      std::copy(x, x + channels, raw + h * channels);
      rstd[h] = s;
    }
    const T* gain = all->gain_of<T>(h);
    if (gain != nullptr)
      scale_head<true>(x, s, gain, cosines, channels);
    else
      scale_head<false>(x, s, gain, cosines, channels);
  }
}

/// The gradient of what a head was before it turned: of channels j and half + j.
struct Turned {
  float first, second;
};
template <class T>
TRIREME_INLINE Turned turned_back(
    const T* d, const float* cosines, const float* sines, std::int64_t j, std::int64_t half) {
  const float a = to_float(d[j]), b = to_float(d[half + j]);
  return {a * cosines[j] + b * sines[j], b * cosines[j] - a * sines[j]};
}

/// dx = s (u - xhat mean(u xhat)) with u = dz gain, xhat = x s, and dz the gradient turned back.
template <bool Gains, class T>
TRIREME_INLINE void head_backward(
    T* d, const T* x, float s, const T* gain, const float* cosines, std::int64_t channels) {
  const std::int64_t half = channels / 2;
  const float* sines = cosines != nullptr ? cosines + half : nullptr;
  float product = 0;
  if (cosines == nullptr) {
#pragma omp simd reduction(+ : product)
    for (std::int64_t c = 0; c < channels; ++c)
      product += to_float(d[c]) * gain_at<Gains>(gain, c) * (to_float(x[c]) * s);
  } else {
#pragma omp simd reduction(+ : product)
    for (std::int64_t j = 0; j < half; ++j) {
      const Turned dz = turned_back(d, cosines, sines, j, half);
      product += dz.first * gain_at<Gains>(gain, j) * (to_float(x[j]) * s) +
                 dz.second * gain_at<Gains>(gain, half + j) * (to_float(x[half + j]) * s);
    }
  }
  product /= static_cast<float>(channels);
  if (cosines == nullptr) {
#pragma omp simd
    for (std::int64_t c = 0; c < channels; ++c) {
      const float u = to_float(d[c]) * gain_at<Gains>(gain, c);
      d[c] = from_float<T>(s * (u - to_float(x[c]) * s * product));
    }
    return;
  }
#pragma omp simd
  for (std::int64_t j = 0; j < half; ++j) {
    const Turned dz = turned_back(d, cosines, sines, j, half);
    const float u = dz.first * gain_at<Gains>(gain, j);
    const float v = dz.second * gain_at<Gains>(gain, half + j);
    d[j] = from_float<T>(s * (u - to_float(x[j]) * s * product));
    d[half + j] = from_float<T>(s * (v - to_float(x[half + j]) * s * product));
  }
}

template <class T>
TRIREME_CLONES_BELOW_AVX512 void backward_row(
    T* d_row, const T* raw, const float* rstd, const float* cosines, const HeadNorm* all) {
  const std::int64_t channels = all->channels();
  for (std::int64_t h = 0; h < all->heads(); ++h) {
    T* d = d_row + h * channels;
    const T* x = raw + h * channels;
    const T* gain = all->gain_of<T>(h);
    if (gain != nullptr)
      head_backward<true>(d, x, rstd[h], gain, cosines, channels);
    else
      head_backward<false>(d, x, rstd[h], gain, cosines, channels);
  }
}

constexpr std::int64_t columns_together = 16;
constexpr std::int64_t rows_per_part = 64;
using Sums = std::array<float, columns_together>;

/// Adds dz xhat of `count` columns from `column` on, over the heads [begin, end) of one row; of
/// what is rotated, to `second` those half a head further.
template <class T>
TRIREME_CLONES_BELOW_AVX512 void add_gain_terms(float* first,
                                                float* second,
                                                const T* d_row,
                                                const T* raw,
                                                const float* rstd,
                                                const float* cosines,
                                                std::int64_t begin,
                                                std::int64_t end,
                                                std::int64_t column,
                                                std::int64_t count,
                                                std::int64_t channels) {
  const std::int64_t half = channels / 2;
  const float* sines = cosines != nullptr ? cosines + half : nullptr;
  for (std::int64_t h = begin; h < end; ++h) {
    const T* d = d_row + h * channels;
    const T* x = raw + h * channels;
    const float s = rstd[h];
    if (cosines == nullptr) {
#pragma omp simd
      for (std::int64_t i = 0; i < count; ++i)
        first[i] += to_float(d[column + i]) * (to_float(x[column + i]) * s);
    } else {
#pragma omp simd
      for (std::int64_t i = 0; i < count; ++i) {
        const Turned dz = turned_back(d, cosines, sines, column + i, half);
        first[i] += dz.first * (to_float(x[column + i]) * s);
        second[i] += dz.second * (to_float(x[half + column + i]) * s);
      }
    }
  }
}

/// Sixteen channels at a time are those of both halves of a head.
bool by_halves(const HeadNorm& all) {
  return has_avx512() && all.channels() % 2 == 0;
}

/// Sums of 64 rows are added up, so the error grows with rows / 64. By halves, or of what is rotated,
/// the columns are those of the first half, and the others are half a head further.
template <class T>
void gradient_of_gain(float* to,
                      const HeadNormBackward& call,
                      std::int64_t begin,
                      std::int64_t end) {
  const HeadNorm& all = call.norm;
  const T* d_packed = call.d_packed.as<T>();
  const T* raw = call.raw.as<T>();
  const float* rstd = call.rstd.as<float>();
  const std::int64_t rows = call.d_packed.elements / all.shape.stride;
  const bool rotates = !all.table.empty(), halved = rotates || by_halves(all);
  const std::int64_t half = all.channels() / 2;
  for_chunks(halved ? half : all.channels(), columns_together,
             [&](std::int64_t column, std::int64_t last) {
               Sums first_total{}, second_total{};
               for (std::int64_t part = 0; part < rows; part += rows_per_part) {
                 Sums first{}, second{};
                 const std::int64_t stop = std::min(rows, part + rows_per_part);
#if defined(__x86_64__)
                 if (by_halves(all))
                   avx512::sum_gain_terms(first.data(), second.data(), d_packed, raw, rstd, all,
                                          part, stop, begin, end, column, last - column);
                 else
#endif
                   for (std::int64_t r = part; r < stop; ++r)
                     add_gain_terms(first.data(), second.data(), d_packed + r * all.shape.stride,
                                    raw + r * all.heads() * all.channels(), rstd + r * all.heads(),
                                    all.angles_of(r), begin, end, column, last - column,
                                    all.channels());
                 for (std::size_t i = 0; i < first.size(); ++i) {
                   first_total[i] += first[i];
                   second_total[i] += second[i];
                 }
               }
               for (std::int64_t c = column; c < last; ++c) {
                 to[c] += first_total[static_cast<std::size_t>(c - column)];
                 if (halved)
                   to[half + c] += second_total[static_cast<std::size_t>(c - column)];
               }
             });
}

std::int64_t head_rows_per_chunk(const HeadNorm& all) {
  return std::max<std::int64_t>(1, elements_per_chunk / (all.heads() * all.channels()));
}

}  // namespace

template <class T>
void run(Threads, const HeadNormForward& call) {
  const HeadNorm& all = call.norm;
  const std::int64_t rows = call.packed.elements / all.shape.stride;
  const std::int64_t heads = all.heads(), kept = heads * all.channels();
  for_chunks(rows, head_rows_per_chunk(all), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      T* row = call.packed.as<T>() + r * all.shape.stride;
      T* raw = call.raw.empty() ? nullptr : call.raw.as<T>() + r * kept;
      float* rstd = call.rstd.empty() ? nullptr : call.rstd.as<float>() + r * heads;
      const float* angles = all.angles_of(r);
#if defined(__x86_64__)
      if (by_halves(all)) {
        avx512::norm_heads(row, raw, rstd, angles, all);
        continue;
      }
#endif
      forward_row(row, raw, rstd, angles, &all);
    }
  });
}

template <class T>
void run(Threads, const HeadNormBackward& call) {
  const HeadNorm& all = call.norm;
  const std::int64_t rows = call.d_packed.elements / all.shape.stride;
  const std::int64_t heads = all.heads(), kept = heads * all.channels();
  // The gains first: the gradient is overwritten.
  if (!call.d_query_gain.empty()) {
    gradient_of_gain<T>(call.d_query_gain.as<float>(), call, 0, all.query_heads);
    gradient_of_gain<T>(call.d_key_gain.as<float>(), call, all.query_heads, heads);
  }
  for_chunks(rows, head_rows_per_chunk(all), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      T* d_row = call.d_packed.as<T>() + r * all.shape.stride;
      const T* raw = call.raw.as<T>() + r * kept;
      const float* rstd = call.rstd.as<float>() + r * heads;
      const float* angles = all.angles_of(r);
#if defined(__x86_64__)
      if (by_halves(all)) {
        avx512::norm_heads_backward(d_row, raw, rstd, angles, all);
        continue;
      }
#endif
      backward_row(d_row, raw, rstd, angles, &all);
    }
  });
}

TRIREME_CPU_BODIES(HeadNormForward);
TRIREME_CPU_BODIES(HeadNormBackward);

}  // namespace trireme::ops::cpu
