// SPDX-License-Identifier: Apache-2.0
#include "ops/embedding.hpp"

#include "ops/cpu/dropout.hpp"
#include "ops/cpu/loops.hpp"

namespace trireme::ops::cpu {
namespace {

/// Rows [begin, end) of out = [B·T, C]. Null `positions`: whole sequences.
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
  for (std::int64_t r = begin; r < end; ++r) {
    const std::int64_t position = positions != nullptr ? positions[r] : r % shape->time;
    const T* a = wte + tokens[r] * C;
    const T* b = wpe + (wpe != nullptr ? position * C : 0);
    const auto drop_row = [&](const auto& made) TRIREME_INLINED {
      drop(out + r * C, *dropout, r / shape->time, position * C, C, made);
    };
    if (wpe == nullptr)
      drop_row([=](std::int64_t c, float factor)
                   TRIREME_INLINED { return to_float(a[c]) * factor; });
    else
      drop_row([=](std::int64_t c, float factor)
                   TRIREME_INLINED { return (to_float(a[c]) + to_float(b[c])) * factor; });
  }
}

constexpr std::int64_t columns_per_piece = 64;
static_assert(columns_per_piece <= dropout_run_elements);

/// Adds all rows of a few columns: each thread owns columns, so rows are added in order.
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
    const float* factors = dropout->active() ? dropout_run(run, *dropout, r / shape->time,
                                                           position * C + column, count)
                                             : nullptr;
    for (float* to : {token, place}) {
      if (to == nullptr)
        continue;
      if (factors != nullptr) {
#pragma omp simd
        for (std::int64_t c = 0; c < count; ++c) to[c] += to_float(from[c]) * factors[c];
      } else {
#pragma omp simd
        for (std::int64_t c = 0; c < count; ++c) to[c] += to_float(from[c]);
      }
    }
  }
}

}  // namespace

template <class T>
void run(Threads, const EmbeddingForward& call) {
  for_rows(call.tokens.elements, call.shape.channels, [&](std::int64_t begin, std::int64_t end) {
    forward_kernel<T>(call.out.as<T>(), call.tokens.as<std::int32_t>(),
                      call.positions.as_optional<std::int32_t>(), call.wte.as<T>(),
                      call.wpe.as_optional<T>(), &call.shape, &call.dropout, begin, end);
  });
}

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
