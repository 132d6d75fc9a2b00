// SPDX-License-Identifier: Apache-2.0
#include "ops/layer_norm.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "ops/cpu/dropout.hpp"
#include "ops/cpu/loops.hpp"
#include "ops/elementwise.hpp"
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
TRIREME_CLONES_BELOW_AVX512 void backward_kernel(const LayerNormBackward* call,
                                                 std::int64_t begin,
                                                 std::int64_t end) {
  const T* gamma = call->gamma.as_optional<T>();
  const std::int64_t channels = call->channels;
  const float inverse = 1.0F / static_cast<float>(channels);
  for (std::int64_t r = begin; r < end; ++r) {
    const T* dy = call->dy.as<T>() + r * channels;
    const T* x = call->x.as<T>() + r * channels;
    T* to = call->dx.as<T>() + r * channels;
    const float m = call->mean_of(r), s = call->rstd.as<float>()[r];
    float sum = 0, product = 0;
#pragma omp simd reduction(+ : sum, product)
    for (std::int64_t c = 0; c < channels; ++c) {
      const float g = to_float(dy[c]) * gamma_at(gamma, c);
      sum += g;
      product += g * ((to_float(x[c]) - m) * s);
    }
    sum = call->centers() ? sum * inverse : 0.0F;
    product *= inverse;
    if (call->accumulate) {
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
                                const LayerNormBackward& call,
                                std::int64_t begin,
                                std::int64_t end,
                                std::int64_t column,
                                std::int64_t count) {
  for (std::int64_t r = begin; r < end; ++r) {
    const T* dy = call.dy.as<T>() + r * call.channels + column;
    const T* x = call.x.as<T>() + r * call.channels + column;
    const float m = call.mean_of(r), s = call.rstd.as<float>()[r];
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
                                             const LayerNormBackward* call,
                                             std::int64_t begin,
                                             std::int64_t end,
                                             std::int64_t column,
                                             std::int64_t count) {
  if (count == columns_per_piece)
    add_columns<T>(scale, shift, *call, begin, end, column, columns_per_piece);
  else
    add_columns<T>(scale, shift, *call, begin, end, column, count);
}

template <class T>
void add_rows(float* scale,
              float* shift,
              const LayerNormBackward& call,
              std::int64_t begin,
              std::int64_t end,
              std::int64_t column,
              std::int64_t count) {
#if defined(__x86_64__)
  if (has_avx512()) {
    avx512::add_norm_rows<T>(scale, shift, call, begin, end, column, count);
    return;
  }
#endif
  rows_kernel<T>(scale, shift, &call, begin, end, column, count);
}

/// Sums of 64 rows are added up, so the error grows with rows / 64.
template <class T>
void parameters_of_piece(const LayerNormBackward& call, std::int64_t column, std::int64_t count) {
  using Piece = std::array<float, columns_per_piece>;
  Piece scale_total{}, shift_total{};
  for (std::int64_t begin = 0; begin < call.rows(); begin += rows_per_sum) {
    Piece scale{}, shift{};
    add_rows<T>(scale.data(), shift.data(), call, begin,
                std::min(call.rows(), begin + rows_per_sum), column, count);
    for (std::size_t c = 0; c < columns_per_piece; ++c) {
      scale_total[c] += scale[c];
      shift_total[c] += shift[c];
    }
  }
  for (std::int64_t c = 0; c < count; ++c) {
    if (!call.dgamma.empty())
      call.dgamma.as<float>()[column + c] += scale_total[static_cast<std::size_t>(c)];
    if (!call.dbeta.empty())
      call.dbeta.as<float>()[column + c] += shift_total[static_cast<std::size_t>(c)];
  }
}

std::int64_t rows_per_chunk(std::int64_t channels) {
  return std::max<std::int64_t>(1, elements_per_chunk / channels);
}

/// Rows [begin, end) of the sum.
template <class T>
void add_branch(const LayerNormForward& call, std::int64_t begin, std::int64_t end) {
  const std::int64_t per_sample = call.rows_per_sample, channels = call.channels;
  for (std::int64_t r = begin, next = 0; r < end; r = next) {
    next = std::min(end, (r / per_sample + 1) * per_sample);
    const std::int64_t at = r * channels;
    residual_kernel(call.sum.as<T>() + at, call.x.as<T>() + at, call.branch.as<T>() + at,
                    r / per_sample, r % per_sample * channels, (next - r) * channels,
                    &call.dropout);
  }
}

template <class T>
void normalize(const LayerNormForward& call, std::int64_t row, std::int64_t rows) {
  const std::int64_t at = row * call.channels;
  float* mean = call.centers() ? call.mean.as<float>() + row : nullptr;
#if defined(__x86_64__)
  if (has_avx512()) {
    avx512::normalize_rows(call.y.as<T>() + at, mean, call.rstd.as<float>() + row,
                           call.normalized<T>() + at, call.gamma.as_optional<T>(),
                           call.beta.as_optional<T>(), rows, call.channels, call.epsilon);
    return;
  }
#endif
  forward_kernel(call.y.as<T>() + at, mean, call.rstd.as<float>() + row, call.normalized<T>() + at,
                 call.gamma.as_optional<T>(), call.beta.as_optional<T>(), rows, call.channels,
                 call.epsilon);
}

/// Sums are normalized while they are in the first cache.
std::int64_t rows_together(const LayerNormForward& call, std::int64_t rows) {
  constexpr std::int64_t elements = 2048;
  return call.branch.empty() ? rows : std::max<std::int64_t>(1, elements / call.channels);
}

}  // namespace

template <class T>
void run(Threads, const LayerNormForward& call) {
  for_chunks(call.rows(), rows_per_chunk(call.channels), [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t together = rows_together(call, end - begin);
    for (std::int64_t r = begin; r < end; r += together) {
      const std::int64_t count = std::min(together, end - r);
      if (!call.branch.empty())
        add_branch<T>(call, r, r + count);
      normalize<T>(call, r, count);
    }
  });
}

template <class T>
void run(Threads where, const LayerNormBackward& call) {
  // The parameters first: dx may be dy.
  if (!call.dgamma.empty() || !call.dbeta.empty())
    for_chunks(call.channels, columns_per_piece, [&](std::int64_t begin, std::int64_t end) {
      parameters_of_piece<T>(call, begin, end - begin);
    });
  for_chunks(call.rows(), rows_per_chunk(call.channels), [&](std::int64_t begin, std::int64_t end) {
#if defined(__x86_64__)
    if (has_avx512()) {
      avx512::normalize_rows_backward<T>(call, begin, end);
      return;
    }
#endif
    backward_kernel<T>(&call, begin, end);
  });
  if (!call.dbias.empty())
    run<T>(where, BiasBackward{.db = call.dbias, .dy = call.dx});
}

TRIREME_CPU_BODIES(LayerNormForward);
TRIREME_CPU_BODIES(LayerNormBackward);

}  // namespace trireme::ops::cpu
