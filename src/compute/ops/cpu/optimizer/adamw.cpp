// SPDX-License-Identifier: Apache-2.0
#include "ops/calls/adamw.hpp"

#include <cmath>

#include "ops/cpu/loops.hpp"
#include "ops/cpu/optimizer/moment_rounding.hpp"

namespace trireme::ops::cpu {
namespace {

template <class T, class M>
struct AdamwViews {
  T* parameter;
  float* master;
  M* m;
  M* v;
  const float* gradient;
};

template <class T, class M>
TRIREME_INLINE void update_element(const AdamwViews<T, M>& at,
                                   const AdamwStep& s,
                                   float scale,
                                   std::int64_t i,
                                   std::uint32_t word) {
  const float g = scale * at.gradient[i];
  const float first = s.beta1 * to_float(at.m[i]) + s.gain1 * g;
  const float second = s.beta2 * to_float(at.v[i]) + s.gain2 * g * g;
  const float direction = (first / s.correction1) / (std::sqrt(second / s.correction2) + s.epsilon);
  const float updated =
      at.master[i] - s.learning_rate * (direction + s.weight_decay * at.master[i]);
  at.m[i] = kept_moment<M>(first, word & 0xffffU);
  at.v[i] = kept_moment<M>(second, word >> 16U);
  at.master[i] = updated;
  at.parameter[i] = from_float<T>(updated);
}

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
  const AdamwViews<T, M> all{parameter, master, m, v, gradient};
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) update_element(all, s, scale, i, word_of<M>(words, i));
}

}  // namespace

template <class T, class M>
void run(Threads, const AdamwRange<T, M>& range, float scale) {
  for_chunks(range.count, elements_per_chunk, [&](std::int64_t begin, std::int64_t end) {
    for_moment_runs<M>(range.rounding, begin, end,
                       [&](std::int64_t at, std::int64_t elements, const std::uint32_t* words) {
                         adamw_kernel(range.parameter + at, range.master + at, range.m + at,
                                      range.v + at, range.gradient + at, &range.step, words, scale,
                                      elements);
                       });
  });
}

template void run(Threads, const AdamwRange<float, float>&, float);
template void run(Threads, const AdamwRange<float, Bf16>&, float);
template void run(Threads, const AdamwRange<Bf16, float>&, float);
template void run(Threads, const AdamwRange<Bf16, Bf16>&, float);

}  // namespace trireme::ops::cpu
