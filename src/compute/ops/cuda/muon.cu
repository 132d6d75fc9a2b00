// SPDX-License-Identifier: Apache-2.0
// All operations use explicit rounding, as in adamw.cu: the bits do not depend on shard boundaries.
#include "ops/cuda/loops.cuh"
#include "ops/cuda/moment_rounding.cuh"
#include "ops/optimizer/muon.hpp"

namespace trireme::ops::cuda {
namespace {

constexpr int at_a_time = 4;

template <class M>
struct DirectionLoop {
  MuonDirection call;
  template <int N>
  __device__ void run(std::int64_t i) const {
    if (call.norm->finite == 0)
      return;
    const MuonStep& s = call.step;
    const float scale = call.norm->scale;
    const float of_gradient = s.nesterov ? s.gain : 0.0F,
                of_moment = s.nesterov ? s.momentum : 1.0F;
    auto gradient = load<N>(call.gradient.as<float>() + i);
    auto m = load<N>(call.m.as<M>() + i);
    const Words4 random = words<N, M>(call.rounding, i);
    for (int k = 0; k < N; ++k) {
      const float g = __fmul_rn(scale, gradient.v[k]);
      const float first = fmaf(s.momentum, to_float(m.v[k]), __fmul_rn(s.gain, g));
      m.v[k] = kept_moment<M>(first, random.w[k] & 0xffffU);
      gradient.v[k] = fmaf(of_gradient, g, __fmul_rn(of_moment, first));
    }
    store<N>(call.m.as<M>() + i, m);
    store<N>(call.gradient.as<float>() + i, gradient);
  }
};

template <class T>
struct UpdateLoop {
  MuonUpdate call;
  template <int N>
  __device__ void run(std::int64_t i) const {
    if (call.norm->finite == 0)
      return;
    const MuonStep& s = call.step;
    auto master = load<N>(call.master.as<float>() + i);
    const auto direction = load<N>(call.direction.as<float>() + i);
    Pack<T, N> rounded;
    for (int k = 0; k < N; ++k) {
      master.v[k] =
          fmaf(-s.learning_rate, fmaf(s.weight_decay, master.v[k], direction.v[k]), master.v[k]);
      rounded.v[k] = from_float<T>(master.v[k]);
    }
    store<N>(call.master.as<float>() + i, master);
    store<N>(call.parameter.as<T>() + i, rounded);  // the parameter may be the master
  }
};

}  // namespace

template <class M>
void run(const Queue& queue, const MuonDirection& call) {
  loop<at_a_time>(call.name, DirectionLoop<M>{call}, call.gradient.elements,
                  aligned(call.gradient, call.m), queue.stream);
}

template <class T>
void run(const Queue& queue, const MuonUpdate& call) {
  loop<at_a_time>(call.name, UpdateLoop<T>{call}, call.parameter.elements,
                  aligned(call.parameter, call.master, call.direction), queue.stream);
}

TRIREME_CUDA_BODIES(MuonDirection);
TRIREME_CUDA_BODIES(MuonUpdate);

}  // namespace trireme::ops::cuda
