// SPDX-License-Identifier: Apache-2.0
#include "ops/cpu/optimizer/adamw.hpp"

#include <algorithm>
#include <cmath>
#include <type_traits>

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
                                 const MomentRounding* rounding,
                                 float scale,
                                 std::int64_t count) {
  const AdamwStep s = *step;
  const AdamwViews<T, M> all{parameter, master, m, v, gradient};
  if constexpr (std::is_same_v<M, float>) {
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) update_element(all, s, scale, i, 0);
  } else {
    const MomentRounding places = *rounding;
    MomentWords room;
    for (std::int64_t begin = 0; begin < count; begin += moment_run_elements) {
      const std::int64_t size = std::min(moment_run_elements, count - begin);
      const std::uint32_t* const words = moment_words(room, places, begin, size);
#pragma omp simd
      for (std::int64_t i = 0; i < size; ++i) update_element(all, s, scale, begin + i, words[i]);
    }
  }
}

}  // namespace

template <class T, class M>
void adamw(T* parameter,
           float* master,
           M* m,
           M* v,
           const float* gradient,
           const AdamwStep& step,
           const MomentRounding& rounding,
           float scale,
           std::int64_t count) {
  for_chunks(count, elements_per_chunk, [&](std::int64_t begin, std::int64_t end) {
    const MomentRounding own = later(rounding, begin);
    adamw_kernel(parameter + begin, master + begin, m + begin, v + begin, gradient + begin, &step,
                 &own, scale, end - begin);
  });
}

#define TRIREME_ADAMW(T, M)                                                                      \
  template void adamw(T*, float*, M*, M*, const float*, const AdamwStep&, const MomentRounding&, \
                      float, std::int64_t)
TRIREME_ADAMW(float, float);
TRIREME_ADAMW(Bf16, float);
TRIREME_ADAMW(float, Bf16);
TRIREME_ADAMW(Bf16, Bf16);
#undef TRIREME_ADAMW

}  // namespace trireme::ops::cpu
