// SPDX-License-Identifier: Apache-2.0
#include "ops/embedding.hpp"

#include <algorithm>

#include "ops/cpu/dropout.hpp"
#include "ops/cpu/loops.hpp"

namespace trireme::ops::cpu {
namespace {

/// One row of a token alone, times its mask.
template <class T>
TRIREME_INLINE void copy_dropped(T* to,
                                 const T* from,
                                 DropoutRun& run,
                                 const Dropout& dropout,
                                 std::int64_t sample,
                                 std::int64_t element,
                                 std::int64_t count) {
  if (!dropout.active()) {
    std::copy_n(from, count, to);
    return;
  }
  for (std::int64_t first = 0; first < count; first += dropout_run_elements) {
    const std::int64_t n = std::min(dropout_run_elements, count - first);
    const float* factors = dropout_run(run, dropout, sample, element + first, n);
#pragma omp simd
    for (std::int64_t c = 0; c < n; ++c)
      to[first + c] = from_float<T>(to_float(from[first + c]) * factors[c]);
  }
}

/// Rows [begin, end) of out = [B·T, C]. Null `positions` are those of whole sequences.
template <class T>
TRIREME_CLONES void forward_kernel(T* out,
                                   const std::int32_t* tokens,
                                   const std::int32_t* positions,
                                   const T* wte,
                                   const T* wpe,
                                   const EmbeddingShape* shape,
                                   const Dropout* dropout,
                                   std::int64_t begin,
                                   std::int64_t end) {
  const std::int64_t C = shape->channels;
  DropoutRun run;
  for (std::int64_t r = begin; r < end; ++r) {
    const std::int64_t position = positions != nullptr ? positions[r] : r % shape->time;
    const T* a = wte + tokens[r] * C;
    T* to = out + r * C;
    if (wpe == nullptr) {
      copy_dropped(to, a, run, *dropout, r / shape->time, position * C, C);
      continue;
    }
    const T* b = wpe + position * C;
    if (!dropout->active()) {
#pragma omp simd
      for (std::int64_t c = 0; c < C; ++c) to[c] = from_float<T>(to_float(a[c]) + to_float(b[c]));
      continue;
    }
    for (std::int64_t first = 0; first < C; first += dropout_run_elements) {
      const std::int64_t n = std::min(dropout_run_elements, C - first);
      const float* factors = dropout_run(run, *dropout, r / shape->time, position * C + first, n);
#pragma omp simd
      for (std::int64_t c = 0; c < n; ++c)
        to[first + c] =
            from_float<T>((to_float(a[first + c]) + to_float(b[first + c])) * factors[c]);
    }
  }
}

constexpr std::int64_t columns_per_piece = 64;
static_assert(columns_per_piece <= dropout_run_elements);

/// All rows of a few columns: each thread owns columns, so the order of additions is the rows'.
template <class T>
TRIREME_CLONES void backward_kernel(float* dwte,
                                    float* dwpe,
                                    const T* dout,
                                    const std::int32_t* tokens,
                                    const EmbeddingShape* shape,
                                    const Dropout* dropout,
                                    std::int64_t column,
                                    std::int64_t count) {
  const std::int64_t C = shape->channels;
  DropoutRun run;
  for (std::int64_t r = 0; r < shape->batch * shape->time; ++r) {
    const std::int64_t position = r % shape->time;
    float* token = dwte + tokens[r] * C + column;
    float* place = dwpe != nullptr ? dwpe + position * C + column : nullptr;
    const T* from = dout + r * C + column;
    if (dropout->active()) {
      const float* factors =
          dropout_run(run, *dropout, r / shape->time, position * C + column, count);
#pragma omp simd
      for (std::int64_t c = 0; c < count; ++c) token[c] += to_float(from[c]) * factors[c];
      if (place == nullptr)
        continue;
#pragma omp simd
      for (std::int64_t c = 0; c < count; ++c) place[c] += to_float(from[c]) * factors[c];
    } else {
#pragma omp simd
      for (std::int64_t c = 0; c < count; ++c) token[c] += to_float(from[c]);
      if (place == nullptr)
        continue;
#pragma omp simd
      for (std::int64_t c = 0; c < count; ++c) place[c] += to_float(from[c]);
    }
  }
}

std::int64_t rows_per_chunk(const EmbeddingShape& shape) {
  return std::max<std::int64_t>(1, elements_per_chunk / shape.channels);
}

}  // namespace

template <class T>
void run(Threads, const EmbeddingForward& call) {
  for_chunks(call.tokens.elements, rows_per_chunk(call.shape),
             [&](std::int64_t begin, std::int64_t end) {
               forward_kernel<T>(call.out.as<T>(), call.tokens.as<std::int32_t>(),
                                 call.positions.as_optional<std::int32_t>(), call.wte.as<T>(),
                                 call.wpe.as_optional<T>(), &call.shape, &call.dropout, begin, end);
             });
}

/// A token may come many times: each thread adds up all rows of its columns, in their order.
template <class T>
void run(Threads, const EmbeddingBackward& call) {
  for_chunks(call.shape.channels, columns_per_piece, [&](std::int64_t begin, std::int64_t end) {
    backward_kernel(call.dwte.as<float>(), call.dwpe.as_optional<float>(), call.dout.as<T>(),
                    call.tokens.as<std::int32_t>(), &call.shape, &call.dropout, begin, end - begin);
  });
}

TRIREME_CPU_BODIES(EmbeddingForward);
TRIREME_CPU_BODIES(EmbeddingBackward);

}  // namespace trireme::ops::cpu
