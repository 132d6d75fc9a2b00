// SPDX-License-Identifier: Apache-2.0
#include "ops/cpu/cross_entropy.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/cpu/loops.hpp"

namespace trireme::ops::cpu {
namespace {

/// Sums of 512 are added up, so that large vocabularies keep their digits on any lane count.
template <class T>
TRIREME_INLINE float exponentials_of(const T* row, float largest, std::int64_t V) {
  constexpr std::int64_t together = 512;
  float total = 0;
  for (std::int64_t begin = 0; begin < V; begin += together) {
    const std::int64_t end = std::min(V, begin + together);
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t v = begin; v < end; ++v) sum += fast_exp(to_float(row[v]) - largest);
    total += sum;
  }
  return total;
}

template <class T>
TRIREME_CLONES void forward_kernel(float* losses,
                                   const T* logits,
                                   const std::int32_t* targets,
                                   std::int64_t rows,
                                   std::int64_t V) {
  for (std::int64_t r = 0; r < rows; ++r, logits += V) {
    losses[r] = 0;
    if (targets[r] < 0)
      continue;
    const float largest = largest_of(logits, V, -std::numeric_limits<float>::infinity());
    const float sum = exponentials_of(logits, largest, V);
    losses[r] = std::log(sum) - (to_float(logits[targets[r]]) - largest);
  }
}

template <class T, class D>
TRIREME_CLONES void forward_backward_kernel(float* losses,
                                            D* gradient,
                                            const T* logits,
                                            const std::int32_t* targets,
                                            float scale,
                                            std::int64_t rows,
                                            std::int64_t V) {
  for (std::int64_t r = 0; r < rows; ++r, logits += V, gradient += V) {
    if (targets[r] < 0) {
      losses[r] = 0;
      for (std::int64_t v = 0; v < V; ++v) gradient[v] = from_float<D>(0.0F);
      continue;
    }
    const float largest = largest_of(logits, V, -std::numeric_limits<float>::infinity());
    const float sum = exponentials_of(logits, largest, V);
    const float at_target = to_float(logits[targets[r]]) - largest;
    losses[r] = std::log(sum) - at_target;
    const float factor = scale / sum;
#pragma omp simd
    for (std::int64_t v = 0; v < V; ++v)
      gradient[v] = from_float<D>(fast_exp(to_float(logits[v]) - largest) * factor);
    gradient[targets[r]] = from_float<D>(fast_exp(at_target) * factor - scale);
  }
}

std::int64_t rows_per_chunk(std::int64_t V) {
  return std::max<std::int64_t>(1, elements_per_chunk / V);
}

}  // namespace

template <class T>
void cross_entropy_forward(float* losses,
                           const T* logits,
                           const std::int32_t* targets,
                           std::int64_t rows,
                           std::int64_t V) {
  for_chunks(rows, rows_per_chunk(V), [=](std::int64_t begin, std::int64_t end) {
    forward_kernel(losses + begin, logits + begin * V, targets + begin, end - begin, V);
  });
}

template <class T, class D>
void cross_entropy_forward_backward(float* losses,
                                    D* gradient,
                                    const T* logits,
                                    const std::int32_t* targets,
                                    float scale,
                                    std::int64_t rows,
                                    std::int64_t V) {
  for_chunks(rows, rows_per_chunk(V), [=](std::int64_t begin, std::int64_t end) {
    forward_backward_kernel(losses + begin, gradient + begin * V, logits + begin * V,
                            targets + begin, scale, end - begin, V);
  });
}

#define TRIREME_INSTANTIATE(T, D)                                                                \
  template void cross_entropy_forward_backward(float*, D*, const T*, const std::int32_t*, float, \
                                               std::int64_t, std::int64_t);
TRIREME_INSTANTIATE(float, float)
TRIREME_INSTANTIATE(float, Bf16)
TRIREME_INSTANTIATE(Bf16, Bf16)
#undef TRIREME_INSTANTIATE
template void cross_entropy_forward(
    float*, const float*, const std::int32_t*, std::int64_t, std::int64_t);
template void cross_entropy_forward(
    float*, const Bf16*, const std::int32_t*, std::int64_t, std::int64_t);

}  // namespace trireme::ops::cpu
