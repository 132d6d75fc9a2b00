// SPDX-License-Identifier: Apache-2.0
#include "ops/optimizer/adamw.hpp"

#include <cmath>

#include "ops/cpu/loops.hpp"
#include "ops/cpu/optimizer/moment_rounding.hpp"

namespace trireme::ops::cpu {
namespace {

template <class T, class M>
TRIREME_CLONES void adamw_kernel(T* parameter,
                                 float* master,
                                 M* m,
                                 M* v,
                                 const float* gradient,
                                 const AdamwStep* step,
                                 const std::uint32_t* words,
                                 float scale,
                                 std::int64_t count) {
  const AdamwStep s = *step;
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) {
    const float g = scale * gradient[i];
    const float first = s.beta1 * to_float(m[i]) + s.gain1 * g;
    const float second = s.beta2 * to_float(v[i]) + s.gain2 * g * g;
    const float direction =
        (first / s.correction1) / (std::sqrt(second / s.correction2) + s.epsilon);
    const float updated = master[i] - s.learning_rate * (direction + s.weight_decay * master[i]);
    const std::uint32_t word = word_of<M>(words, i);
    m[i] = kept_moment<M>(first, word & 0xffffU);
    v[i] = kept_moment<M>(second, word >> 16U);
    master[i] = updated;
    parameter[i] = from_float<T>(updated);
  }
}

template <class T, class M>
void update_range(const Adamw& range) {
  for_chunks(
      range.parameter.elements, elements_per_chunk, [&](std::int64_t begin, std::int64_t end) {
        for_moment_runs<M>(range.rounding, begin, end,
                           [&](std::int64_t at, std::int64_t elements, const std::uint32_t* words) {
                             adamw_kernel(range.parameter.as<T>() + at,
                                          range.master.as<float>() + at, range.m.as<M>() + at,
                                          range.v.as<M>() + at, range.gradient.as<float>() + at,
                                          &range.step, words, range.norm->scale, elements);
                           });
      });
}

}  // namespace

template <class T>
void run(Threads, const Adamw& call) {
  if (call.norm->finite == 0)
    return;
  if (call.m.dtype == DType::bf16)
    update_range<T, Bf16>(call);
  else
    update_range<T, float>(call);
}

TRIREME_CPU_BODIES(Adamw);

}  // namespace trireme::ops::cpu
