// SPDX-License-Identifier: Apache-2.0
// Every operation is spelled out (the _rn functions and fmaf), so that the compiler cannot contract
// the packed and the single loop differently: an element has the same bits wherever a shard begins.
#include "ops/cuda/adamw.hpp"
#include "ops/cuda/loops.cuh"

namespace trireme::ops::cuda {
namespace {

template <class M>
__device__ inline M kept_moment(float value, std::uint32_t random);
template <>
__device__ inline float kept_moment<float>(float value, std::uint32_t) {
  return value;
}
template <>
__device__ inline Bf16 kept_moment<Bf16>(float value, std::uint32_t random) {
  Bf16 kept;
  kept.bits = static_cast<std::uint16_t>(rounded_at_random(__float_as_uint(value), random));
  return kept;
}

template <class T, class M>
struct Update {
  T* parameter;
  float* master;
  M* m;
  M* v;
  const float* gradient;
  AdamwStep step;
  MomentRounding rounding;
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

  /// moment_word() of elements [i, i + N); nothing where moments are fp32.
  template <int N>
  __device__ Words4 words(std::int64_t i) const {
    Words4 all{};
    if constexpr (sizeof(M) == sizeof(Bf16)) {
      if (N == 4 && (rounding.first + i) % 4 == 0)
        return philox(rounding.key, rounding.counter(i), rounding.step);
      for (int k = 0; k < N; ++k) all.w[k] = moment_word(rounding, i + k);
    }
    return all;
  }

  template <int N>
  __device__ void run(std::int64_t i) const {
    if (norm->finite == 0)
      return;
    const float scale = norm->scale;
    const auto g = load<N>(gradient + i);
    auto exact = load<N>(master + i);
    auto first = load<N>(m + i), second = load<N>(v + i);
    const Words4 random = words<N>(i);
    Pack<T, N> rounded;
    for (int k = 0; k < N; ++k) {
      float mean = to_float(first.v[k]), square = to_float(second.v[k]);
      update(step, scale, g.v[k], exact.v[k], mean, square);
      first.v[k] = kept_moment<M>(mean, random.w[k] & 0xffffU);
      second.v[k] = kept_moment<M>(square, random.w[k] >> 16U);
      rounded.v[k] = from_float<T>(exact.v[k]);
    }
    store<N>(m + i, first);
    store<N>(v + i, second);
    store<N>(master + i, exact);
    store<N>(parameter + i, rounded);
  }
};

}  // namespace

template <class T, class M>
void adamw(T* parameter,
           float* master,
           M* m,
           M* v,
           const float* gradient,
           const AdamwStep& step,
           const MomentRounding& rounding,
           const GradientNorm* norm,
           std::int64_t count,
           device::cuda::RawStream stream) {
  loop<4>("adamw", Update<T, M>{parameter, master, m, v, gradient, step, rounding, norm}, count,
          aligned(parameter, master, m, v, gradient), stream);
}

#define TRIREME_ADAMW(T, M)                                                                      \
  template void adamw(T*, float*, M*, M*, const float*, const AdamwStep&, const MomentRounding&, \
                      const GradientNorm*, std::int64_t, device::cuda::RawStream)
TRIREME_ADAMW(float, float);
TRIREME_ADAMW(Bf16, float);
TRIREME_ADAMW(float, Bf16);
TRIREME_ADAMW(Bf16, Bf16);
#undef TRIREME_ADAMW

}  // namespace trireme::ops::cuda
