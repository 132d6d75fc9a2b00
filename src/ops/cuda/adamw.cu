// SPDX-License-Identifier: Apache-2.0
// Every operation is spelled out (the _rn functions and fmaf), so that the compiler cannot contract
// the packed and the single loop differently: an element has the same bits wherever a shard begins.
#include "ops/cuda/adamw.hpp"
#include "ops/cuda/loops.cuh"

namespace trireme::ops::cuda {
namespace {

template <class T>
struct Update {
  T* parameter;
  float* master;
  float* m;
  float* v;
  const float* gradient;
  AdamwStep step;
  const GradientNorm* norm;

  __device__ static void update(
      const AdamwStep& s, float scale, float gradient, float& master, float& m, float& v) {
    const float g = __fmul_rn(scale, gradient);
    m = fmaf(s.beta1, m, __fmul_rn(s.gain1, g));
    v = fmaf(s.beta2, v, __fmul_rn(__fmul_rn(s.gain2, g), g));
    const float direction = __fdiv_rn(
        __fdiv_rn(m, s.correction1), __fadd_rn(__fsqrt_rn(__fdiv_rn(v, s.correction2)), s.epsilon));
    master = fmaf(-s.learning_rate, fmaf(s.weight_decay, master, direction), master);
  }

  template <int N>
  __device__ void run(std::int64_t i) const {
    if (norm->finite == 0)
      return;
    const float scale = norm->scale;
    const auto g = load<N>(gradient + i);
    auto exact = load<N>(master + i), first = load<N>(m + i), second = load<N>(v + i);
    Pack<T, N> rounded;
    for (int k = 0; k < N; ++k) {
      update(step, scale, g.v[k], exact.v[k], first.v[k], second.v[k]);
      rounded.v[k] = from_float<T>(exact.v[k]);
    }
    store<N>(m + i, first);
    store<N>(v + i, second);
    store<N>(master + i, exact);
    store<N>(parameter + i, rounded);
  }
};

}  // namespace

template <class T>
void adamw(T* parameter,
           float* master,
           float* m,
           float* v,
           const float* gradient,
           const AdamwStep& step,
           const GradientNorm* norm,
           std::int64_t count,
           device::cuda::RawStream stream) {
  loop<4>("adamw", Update<T>{parameter, master, m, v, gradient, step, norm}, count,
          aligned(parameter, master, m, v, gradient), stream);
}

template void adamw(float*,
                    float*,
                    float*,
                    float*,
                    const float*,
                    const AdamwStep&,
                    const GradientNorm*,
                    std::int64_t,
                    device::cuda::RawStream);
template void adamw(Bf16*,
                    float*,
                    float*,
                    float*,
                    const float*,
                    const AdamwStep&,
                    const GradientNorm*,
                    std::int64_t,
                    device::cuda::RawStream);

}  // namespace trireme::ops::cuda
