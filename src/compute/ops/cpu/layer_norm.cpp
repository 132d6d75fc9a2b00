// SPDX-License-Identifier: Apache-2.0
#include "ops/layer_norm.hpp"

#include <algorithm>
#include <array>

#include "ops/cpu/dropout.hpp"
#include "ops/cpu/levels.hpp"
#include "ops/elementwise.hpp"

#define TRIREME_KERNELS "ops/cpu/layer_norm_kernels.hpp"
#include "ops/cpu/for_each_level.hpp"

namespace trireme::ops::cpu {
namespace {

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

constexpr std::int64_t columns_per_piece = 32;
constexpr std::int64_t rows_per_sum = 64;

/// Sums of 64 rows are added up, so the error grows with rows / 64.
template <class T>
void parameters_of_piece(const LayerNormBackward& call, std::int64_t column, std::int64_t count) {
  using Piece = std::array<float, columns_per_piece>;
  auto* const add_rows = TRIREME_BEST(add_norm_rows<T>);
  Piece scale_total{}, shift_total{};
  for (std::int64_t begin = 0; begin < call.rows(); begin += rows_per_sum) {
    Piece scale{}, shift{};
    add_rows(scale.data(), shift.data(), call, begin, std::min(call.rows(), begin + rows_per_sum),
             column, count);
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
      TRIREME_BEST(normalize_rows<T>)(call, r, r + count);
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
    TRIREME_BEST(normalize_rows_backward<T>)(call, begin, end);
  });
  if (!call.dbias.empty())
    run<T>(where, BiasBackward{.db = call.dbias, .dy = call.dx});
}

TRIREME_CPU_BODIES(LayerNormForward);
TRIREME_CPU_BODIES(LayerNormBackward);

}  // namespace trireme::ops::cpu
