// SPDX-License-Identifier: Apache-2.0
#include "ops/cpu/optimizer/muon.hpp"

#include "ops/cpu/loops.hpp"

namespace trireme::ops::cpu {
namespace {

TRIREME_CLONES void direction_kernel(
    float* gradient, float* m, const MuonStep* step, float scale, std::int64_t count) {
  const MuonStep s = *step;
  // Without Nesterov: the moment alone.
  const float of_gradient = s.nesterov ? s.gain : 0.0F;
  const float of_moment = s.nesterov ? s.momentum : 1.0F;
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) {
    const float g = scale * gradient[i];
    const float first = s.momentum * m[i] + s.gain * g;
    m[i] = first;
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

void muon_direction(
    float* gradient, float* m, const MuonStep& step, float scale, std::int64_t count) {
  for_chunks(count, elements_per_chunk, [&](std::int64_t begin, std::int64_t end) {
    direction_kernel(gradient + begin, m + begin, &step, scale, end - begin);
  });
}

template <class T>
void muon_update(
    T* parameter, float* master, const float* direction, const MuonStep& step, std::int64_t count) {
  for_chunks(count, elements_per_chunk, [&](std::int64_t begin, std::int64_t end) {
    update_kernel(parameter + begin, master + begin, direction + begin, &step, end - begin);
  });
}

template void muon_update(float*, float*, const float*, const MuonStep&, std::int64_t);
template void muon_update(Bf16*, float*, const float*, const MuonStep&, std::int64_t);

}  // namespace trireme::ops::cpu
