// SPDX-License-Identifier: Apache-2.0
#include "ops/elementwise.hpp"

#include <algorithm>
#include <array>

#include "ops/cpu/dropout.hpp"
#include "ops/cpu/loops.hpp"

namespace trireme::ops::cpu {
namespace {

template <class T>
TRIREME_CLONES void dropout_kernel(T* dbranch,
                                   const T* dy,
                                   std::int64_t elements_per_sample,
                                   std::int64_t first,
                                   std::int64_t count,
                                   const Dropout* dropout) {
  drop_samples(dbranch, *dropout, elements_per_sample, first, count,
               [=](std::int64_t i, float factor)
                   TRIREME_INLINED { return to_float(dy[i]) * factor; });
}

constexpr std::int64_t columns_per_piece = 256;
constexpr std::int64_t rows_per_sum = 64;

/// Sums are accumulated per 64 rows, so the error grows with rows / 64.
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

TRIREME_CLONES void add_kernel(float* sum, const float* term, float factor, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) sum[i] += factor * term[i];
}

template <class To, class From>
TRIREME_CLONES void cast_kernel(To* to, const From* from, float factor, std::int64_t count) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) to[i] = from_float<To>(factor * to_float(from[i]));
}

}  // namespace

template <class T>
void run(Threads, const DropoutBackward& call) {
  for_chunks(call.dy.elements, elements_per_chunk, [&](std::int64_t begin, std::int64_t end) {
    dropout_kernel(call.dbranch.as<T>() + begin, call.dy.as<T>() + begin, call.elements_per_sample,
                   begin, end - begin, &call.dropout);
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
    add_kernel(call.sum.as<T>() + begin, call.term.as<T>() + begin, call.factor, end - begin);
  });
}

template <class To>
void run(Threads, const Cast& call) {
  for_chunks(call.to.elements, elements_per_chunk, [=](std::int64_t begin, std::int64_t end) {
    To* to = call.to.as<To>() + begin;
    if (call.from.dtype == DType::bf16)
      cast_kernel(to, call.from.as<Bf16>() + begin, call.factor, end - begin);
    else
      cast_kernel(to, call.from.as<float>() + begin, call.factor, end - begin);
  });
}

TRIREME_CPU_BODIES(DropoutBackward);
TRIREME_CPU_BODIES(BiasBackward);
template void run<float>(Threads, const Add&);
TRIREME_CPU_BODIES(Cast);

template <class T>
void run(Threads, const DocumentStarts& call) {
  for_chunks(call.tokens.elements / call.time, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const T* tokens = call.tokens.as<T>() + row * call.time;
      T* starts = call.starts.as<T>() + row * call.time;
      T start = 0;
      for (std::int64_t t = 0; t < call.time; ++t) {
        if (tokens[t] == call.token)
          start = static_cast<T>(t);
        starts[t] = start;
      }
    }
  });
}

template void run<std::int32_t>(Threads, const DocumentStarts&);

}  // namespace trireme::ops::cpu
