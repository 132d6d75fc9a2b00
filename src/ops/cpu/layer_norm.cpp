// SPDX-License-Identifier: Apache-2.0
#include "ops/cpu/layer_norm.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "ops/cpu/dropout.hpp"
#include "ops/cpu/loops.hpp"
#if defined(__x86_64__)
#include "ops/cpu/x86/avx512_layer_norm.hpp"
#endif

namespace trireme::ops::cpu {
namespace {

/// 1 without gains.
template <class T>
TRIREME_INLINE float gamma_at(const T* gamma, std::int64_t c) {
  return gamma != nullptr ? to_float(gamma[c]) : 1.0F;
}

template <class T>
TRIREME_CLONES_BELOW_AVX512 void forward_kernel(T* y,
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
    float sum = 0;
    if (mean != nullptr) {
#pragma omp simd reduction(+ : sum)
      for (std::int64_t c = 0; c < channels; ++c) sum += to_float(x[c]);
    }
    const float m = sum * inverse;
    float squares = 0;
#pragma omp simd reduction(+ : squares)
    for (std::int64_t c = 0; c < channels; ++c)
      squares += (to_float(x[c]) - m) * (to_float(x[c]) - m);
    const float s = 1.0F / std::sqrt(squares * inverse + epsilon);
    if (mean != nullptr)
      mean[r] = m;
    rstd[r] = s;
    if (beta != nullptr) {
#pragma omp simd
      for (std::int64_t c = 0; c < channels; ++c)
        y[c] = from_float<T>((to_float(x[c]) - m) * s * gamma_at(gamma, c) + to_float(beta[c]));
    } else {
#pragma omp simd
      for (std::int64_t c = 0; c < channels; ++c)
        y[c] = from_float<T>((to_float(x[c]) - m) * s * gamma_at(gamma, c));
    }
  }
}

/// Elements [first, first + count) of a sample: sum = x + dropout(branch).
template <class T>
TRIREME_CLONES void residual_kernel(T* sum,
                                    const T* x,
                                    const T* branch,
                                    std::int64_t sample,
                                    std::int64_t first,
                                    std::int64_t count,
                                    const Dropout* dropout) {
  if (!dropout->active()) {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i)
      sum[i] = from_float<T>(to_float(x[i]) + to_float(branch[i]));
    return;
  }
  DropoutRun run;
  for (std::int64_t begin = 0; begin < count; begin += dropout_run_elements) {
    const std::int64_t n = std::min(dropout_run_elements, count - begin);
    const float* factors = dropout_run(run, *dropout, sample, first + begin, n);
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i)
      sum[begin + i] =
          from_float<T>(to_float(x[begin + i]) + to_float(branch[begin + i]) * factors[i]);
  }
}

/// dx = rstd (g - mean(g) - xhat mean(g xhat)) with g = dy gamma, xhat = (x - mean) rstd. Without
/// means, of x and of g.
template <class T>
TRIREME_CLONES_BELOW_AVX512 void backward_kernel(T* dx,
                                                 const LayerNormSaved<T>* saved,
                                                 std::int64_t begin,
                                                 std::int64_t end,
                                                 std::int64_t channels,
                                                 bool accumulate) {
  const T* gamma = saved->gamma;
  const float inverse = 1.0F / static_cast<float>(channels);
  for (std::int64_t r = begin; r < end; ++r) {
    const T* dy = saved->dy + r * channels;
    const T* x = saved->x + r * channels;
    T* to = dx + r * channels;
    const float m = saved->mean_of(r), s = saved->rstd[r];
    float sum = 0, product = 0;
#pragma omp simd reduction(+ : sum, product)
    for (std::int64_t c = 0; c < channels; ++c) {
      const float g = to_float(dy[c]) * gamma_at(gamma, c);
      sum += g;
      product += g * ((to_float(x[c]) - m) * s);
    }
    sum = saved->mean != nullptr ? sum * inverse : 0.0F;
    product *= inverse;
    if (accumulate) {
#pragma omp simd
      for (std::int64_t c = 0; c < channels; ++c) {
        const float g = to_float(dy[c]) * gamma_at(gamma, c);
        const float d = s * (g - sum - (to_float(x[c]) - m) * s * product);
        to[c] = from_float<T>(to_float(to[c]) + d);
      }
    } else {
#pragma omp simd
      for (std::int64_t c = 0; c < channels; ++c) {
        const float g = to_float(dy[c]) * gamma_at(gamma, c);
        to[c] = from_float<T>(s * (g - sum - (to_float(x[c]) - m) * s * product));
      }
    }
  }
}

constexpr std::int64_t columns_per_piece = 32;
constexpr std::int64_t rows_per_sum = 64;
/// Adds rows [begin, end) to the sums of `count` columns.
template <class T>
TRIREME_INLINE void add_columns(float* scale,
                                float* shift,
                                const LayerNormSaved<T>& saved,
                                std::int64_t begin,
                                std::int64_t end,
                                std::int64_t column,
                                std::int64_t count,
                                std::int64_t channels) {
  for (std::int64_t r = begin; r < end; ++r) {
    const T* dy = saved.dy + r * channels + column;
    const T* x = saved.x + r * channels + column;
    const float m = saved.mean_of(r), s = saved.rstd[r];
#pragma omp simd
    for (std::int64_t c = 0; c < count; ++c) {
      const float d = to_float(dy[c]);
      scale[c] += d * ((to_float(x[c]) - m) * s);
      shift[c] += d;
    }
  }
}

template <class T>
TRIREME_CLONES_BELOW_AVX512 void rows_kernel(float* scale,
                                             float* shift,
                                             const LayerNormSaved<T>* saved,
                                             std::int64_t begin,
                                             std::int64_t end,
                                             std::int64_t column,
                                             std::int64_t count,
                                             std::int64_t channels) {
  if (count == columns_per_piece)
    add_columns(scale, shift, *saved, begin, end, column, columns_per_piece, channels);
  else
    add_columns(scale, shift, *saved, begin, end, column, count, channels);
}

template <class T>
void add_rows(float* scale,
              float* shift,
              const LayerNormSaved<T>& saved,
              std::int64_t begin,
              std::int64_t end,
              std::int64_t column,
              std::int64_t count,
              std::int64_t channels) {
#if defined(__x86_64__)
  if (has_avx512()) {
    avx512::add_norm_rows(scale, shift, saved, begin, end, column, count, channels);
    return;
  }
#endif
  rows_kernel(scale, shift, &saved, begin, end, column, count, channels);
}

/// Sums of 64 rows are added up, so the error grows with rows / 64.
template <class T>
void parameters_of_piece(float* dgamma,
                         float* dbeta,
                         const LayerNormSaved<T>& saved,
                         std::int64_t rows,
                         std::int64_t column,
                         std::int64_t count,
                         std::int64_t channels) {
  using Piece = std::array<float, columns_per_piece>;
  Piece scale_total{}, shift_total{};
  for (std::int64_t begin = 0; begin < rows; begin += rows_per_sum) {
    Piece scale{}, shift{};
    add_rows(scale.data(), shift.data(), saved, begin, std::min(rows, begin + rows_per_sum), column,
             count, channels);
    for (std::size_t c = 0; c < columns_per_piece; ++c) {
      scale_total[c] += scale[c];
      shift_total[c] += shift[c];
    }
  }
  for (std::int64_t c = 0; c < count; ++c) {
    if (dgamma != nullptr)
      dgamma[column + c] += scale_total[static_cast<std::size_t>(c)];
    if (dbeta != nullptr)
      dbeta[column + c] += shift_total[static_cast<std::size_t>(c)];
  }
}

std::int64_t rows_per_chunk(std::int64_t channels) {
  return std::max<std::int64_t>(1, elements_per_chunk / channels);
}

/// Rows [begin, end) of the sum.
template <class T>
void add_branch(const LayerNormInput<T>& input,
                std::int64_t begin,
                std::int64_t end,
                std::int64_t channels) {
  const std::int64_t per_sample = input.rows_per_sample;
  for (std::int64_t r = begin, next = 0; r < end; r = next) {
    next = std::min(end, (r / per_sample + 1) * per_sample);
    const std::int64_t at = r * channels;
    residual_kernel(input.sum + at, input.x + at, input.branch + at, r / per_sample,
                    r % per_sample * channels, (next - r) * channels, &input.dropout);
  }
}

template <class T>
void normalize(T* y,
               float* mean,
               float* rstd,
               const T* x,
               const T* gamma,
               const T* beta,
               std::int64_t rows,
               std::int64_t channels,
               float epsilon) {
#if defined(__x86_64__)
  if (has_avx512()) {
    avx512::normalize_rows(y, mean, rstd, x, gamma, beta, rows, channels, epsilon);
    return;
  }
#endif
  forward_kernel(y, mean, rstd, x, gamma, beta, rows, channels, epsilon);
}

/// Sums are normalized while they lie in the first cache.
template <class T>
std::int64_t rows_together(const LayerNormInput<T>& input,
                           std::int64_t rows,
                           std::int64_t channels) {
  constexpr std::int64_t elements = 2048;
  return input.branch == nullptr ? rows : std::max<std::int64_t>(1, elements / channels);
}

}  // namespace

template <class T>
void layer_norm_forward(T* y,
                        float* mean,
                        float* rstd,
                        const LayerNormInput<T>& input,
                        const T* gamma,
                        const T* beta,
                        std::int64_t rows,
                        std::int64_t channels,
                        float epsilon) {
  for_chunks(rows, rows_per_chunk(channels), [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t together = rows_together(input, end - begin, channels);
    for (std::int64_t r = begin; r < end; r += together) {
      const std::int64_t count = std::min(together, end - r);
      if (input.branch != nullptr)
        add_branch(input, r, r + count, channels);
      normalize(y + r * channels, mean != nullptr ? mean + r : nullptr, rstd + r,
                input.normalized() + r * channels, gamma, beta, count, channels, epsilon);
    }
  });
}

template <class T>
void layer_norm_backward(T* dx,
                         float* dgamma,
                         float* dbeta,
                         const LayerNormSaved<T>& saved,
                         std::int64_t rows,
                         std::int64_t channels,
                         bool accumulate) {
  // The parameters first: dx may be dy.
  if (dgamma != nullptr || dbeta != nullptr)
    for_chunks(channels, columns_per_piece, [&](std::int64_t begin, std::int64_t end) {
      parameters_of_piece(dgamma, dbeta, saved, rows, begin, end - begin, channels);
    });
  for_chunks(rows, rows_per_chunk(channels), [&](std::int64_t begin, std::int64_t end) {
#if defined(__x86_64__)
    if (has_avx512()) {
      avx512::normalize_rows_backward(dx, saved, begin, end, channels, accumulate);
      return;
    }
#endif
    backward_kernel(dx, &saved, begin, end, channels, accumulate);
  });
}

#define TRIREME_INSTANTIATE(T)                                                                  \
  template void layer_norm_forward(T*, float*, float*, const LayerNormInput<T>&, const T*,      \
                                   const T*, std::int64_t, std::int64_t, float);                \
  template void layer_norm_backward(T*, float*, float*, const LayerNormSaved<T>&, std::int64_t, \
                                    std::int64_t, bool);
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(Bf16)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::ops::cpu
