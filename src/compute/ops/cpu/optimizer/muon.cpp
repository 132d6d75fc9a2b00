// SPDX-License-Identifier: Apache-2.0
#include "ops/optimizer/muon.hpp"

#include "ops/cpu/loops.hpp"
#include "ops/cpu/optimizer/moment_rounding.hpp"

namespace trireme::ops::cpu {
namespace {

template <class M>
TRIREME_CLONES void direction_kernel(float* gradient,
                                     M* m,
                                     const MuonStep* step,
                                     const std::uint32_t* words,
                                     float scale,
                                     std::int64_t count) {
  const MuonStep s = *step;
  const float of_gradient = s.nesterov ? s.gain : 0.0F, of_moment = s.nesterov ? s.momentum : 1.0F;
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) {
    const float g = scale * gradient[i];
    const float first = s.momentum * to_float(m[i]) + s.gain * g;
    m[i] = kept_moment<M>(first, word_of<M>(words, i) & 0xffffU);
    gradient[i] = of_gradient * g + of_moment * first;
  }
}

template <class T>
TRIREME_CLONES void update_kernel(
    T* parameter, float* master, const float* direction, const MuonStep* step, std::int64_t count) {
  const MuonStep s = *step;
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) {
    const float updated = master[i] - s.learning_rate * (direction[i] + s.weight_decay * master[i]);
    master[i] = updated;
    parameter[i] = from_float<T>(updated);
  }
}

}  // namespace

template <class M>
void run(Threads, const MuonDirection& call) {
  if (call.norm->finite == 0)
    return;
  for_chunks(call.gradient.elements, elements_per_chunk, [&](std::int64_t begin, std::int64_t end) {
    for_moment_runs<M>(call.rounding, begin, end,
                       [&](std::int64_t at, std::int64_t elements, const std::uint32_t* words) {
                         direction_kernel(call.gradient.as<float>() + at, call.m.as<M>() + at,
                                          &call.step, words, call.norm->scale, elements);
                       });
  });
}

template <class T>
void run(Threads, const MuonUpdate& call) {
  if (call.norm->finite == 0)
    return;
  for_chunks(call.parameter.elements, elements_per_chunk,
             [&](std::int64_t begin, std::int64_t end) {
               update_kernel(call.parameter.as<T>() + begin, call.master.as<float>() + begin,
                             call.direction.as<float>() + begin, &call.step, end - begin);
             });
}

TRIREME_CPU_BODIES(MuonDirection);
TRIREME_CPU_BODIES(MuonUpdate);

}  // namespace trireme::ops::cpu
