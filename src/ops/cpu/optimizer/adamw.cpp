// SPDX-License-Identifier: Apache-2.0
#include "ops/cpu/optimizer/adamw.hpp"

#include <cmath>

#include "ops/cpu/loops.hpp"

namespace trireme::ops::cpu {
namespace {

template <class T>
TRIREME_CLONES void adamw_kernel(T* parameter,
                                 float* master,
                                 float* m,
                                 float* v,
                                 const float* gradient,
                                 const AdamwStep* step,
                                 float scale,
                                 std::int64_t count) {
  const AdamwStep s = *step;
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) {
    const float g = scale * gradient[i];
    const float first = s.beta1 * m[i] + s.gain1 * g;
    const float second = s.beta2 * v[i] + s.gain2 * g * g;
    const float direction =
        (first / s.correction1) / (std::sqrt(second / s.correction2) + s.epsilon);
    const float updated = master[i] - s.learning_rate * (direction + s.weight_decay * master[i]);
    m[i] = first;
    v[i] = second;
    master[i] = updated;
    parameter[i] = from_float<T>(updated);
  }
}

}  // namespace

template <class T>
void adamw(T* parameter,
           float* master,
           float* m,
           float* v,
           const float* gradient,
           const AdamwStep& step,
           float scale,
           std::int64_t count) {
  for_chunks(count, elements_per_chunk, [&](std::int64_t begin, std::int64_t end) {
    adamw_kernel(parameter + begin, master + begin, m + begin, v + begin, gradient + begin, &step,
                 scale, end - begin);
  });
}

template void adamw(
    float*, float*, float*, float*, const float*, const AdamwStep&, float, std::int64_t);
template void adamw(
    Bf16*, float*, float*, float*, const float*, const AdamwStep&, float, std::int64_t);

}  // namespace trireme::ops::cpu
