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

/// Rows [begin, end) of sum = x + dropout(branch).
template <class T>
TRIREME_CLONES void add_branch(const LayerNormForward* call, std::int64_t begin, std::int64_t end) {
  const std::int64_t first = begin * call->channels;
  const T* x = call->x.as<T>() + first;
  const T* branch = call->branch.as<T>() + first;
  drop_samples(call->sum.as<T>() + first, call->dropout, call->rows_per_sample * call->channels,
               first, (end - begin) * call->channels,
               [=](std::int64_t i, float factor)
                   TRIREME_INLINED { return to_float(x[i]) + to_float(branch[i]) * factor; });
}

constexpr std::int64_t columns_per_piece = 32;
constexpr std::int64_t rows_per_sum = 64;

/// Sums are accumulated per 64 rows, so the error grows with rows / 64.
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

/// Sums are normalized while they are in the first-level cache.
std::int64_t rows_together(const LayerNormForward& call, std::int64_t rows) {
  constexpr std::int64_t elements = 2048;
  return call.branch.empty() ? rows : std::max<std::int64_t>(1, elements / call.channels);
}

}  // namespace

template <class T>
void run(Threads, const LayerNormForward& call) {
  for_rows(call.rows(), call.channels, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t together = rows_together(call, end - begin);
    for (std::int64_t r = begin; r < end; r += together) {
      const std::int64_t count = std::min(together, end - r);
      if (!call.branch.empty())
        add_branch<T>(&call, r, r + count);
      TRIREME_BEST(normalize_rows<T>)(call, r, r + count);
    }
  });
}

template <class T>
void run(Threads where, const LayerNormBackward& call) {
  // The parameters first, because dx may be dy.
  if (!call.dgamma.empty() || !call.dbeta.empty())
    for_chunks(call.channels, columns_per_piece, [&](std::int64_t begin, std::int64_t end) {
      parameters_of_piece<T>(call, begin, end - begin);
    });
  for_rows(call.rows(), call.channels, [&](std::int64_t begin, std::int64_t end) {
    TRIREME_BEST(normalize_rows_backward<T>)(call, begin, end);
  });
  if (!call.dbias.empty())
    run<T>(where, BiasBackward{.db = call.dbias, .dy = call.dx});
}

TRIREME_CPU_BODIES(LayerNormForward);
TRIREME_CPU_BODIES(LayerNormBackward);

}  // namespace trireme::ops::cpu
