// SPDX-License-Identifier: Apache-2.0
// Every operation is spelled out (the _rn functions and fmaf), so that the compiler cannot contract
// the packed and the single loop differently: an element has the same bits wherever a shard begins.
#include "ops/calls/adamw.hpp"
#include "ops/cuda/moment_rounding.cuh"
#include "ops/cuda/pieces.cuh"

namespace trireme::ops::cuda {
namespace {

__device__ inline void update_element(
    const AdamwStep& s, float scale, float gradient, float& master, float& m, float& v) {
  const float g = __fmul_rn(scale, gradient);
  m = fmaf(s.beta1, m, __fmul_rn(s.gain1, g));
  v = fmaf(s.beta2, v, __fmul_rn(__fmul_rn(s.gain2, g), g));
  const float direction = __fdiv_rn(__fdiv_rn(m, s.correction1),
                                    __fadd_rn(__fsqrt_rn(__fdiv_rn(v, s.correction2)), s.epsilon));
  master = fmaf(-s.learning_rate, fmaf(s.weight_decay, master, direction), master);
}

template <int N, class T, class M>
__device__ inline void update(const AdamwRange<T, M>& range, float scale, std::int64_t i) {
  const auto g = load<N>(range.gradient + i);
  auto exact = load<N>(range.master + i);
  auto first = load<N>(range.m + i), second = load<N>(range.v + i);
  const Words4 random = words<N, M>(range.rounding, i);
  Pack<T, N> rounded;
  for (int k = 0; k < N; ++k) {
    float mean = to_float(first.v[k]), square = to_float(second.v[k]);
    update_element(range.step, scale, g.v[k], exact.v[k], mean, square);
    first.v[k] = kept_moment<M>(mean, random.w[k] & 0xffffU);
    second.v[k] = kept_moment<M>(square, random.w[k] >> 16U);
    rounded.v[k] = from_float<T>(exact.v[k]);
  }
  store<N>(range.m + i, first);
  store<N>(range.v + i, second);
  store<N>(range.master + i, exact);
  store<N>(range.parameter + i, rounded);
}

constexpr int adamw_threads = 256, at_a_time = 4;
constexpr std::int64_t per_block = adamw_threads * at_a_time;

template <class T, class M>
struct Listed : AdamwRange<T, M> {
  bool packed;  // its addresses allow at_a_time
};
template <class T, class M>
using List = PieceList<Listed<T, M>, static_cast<int>(most_adamw_ranges)>;

template <class T, class M>
__global__ void __launch_bounds__(adamw_threads, 4)
    adamw_kernel(const __grid_constant__ List<T, M> list, const GradientNorm* norm) {
  if (norm->finite == 0)
    return;
  const float scale = norm->scale;
  const auto block = static_cast<std::int32_t>(blockIdx.x);
  const int which = list.piece_of(block);
  const Listed<T, M>& range = list.pieces[which];
  const std::int64_t begin = (block - list.first_block[which]) * per_block;
  if (const std::int64_t i = begin + threadIdx.x * at_a_time;
      range.packed && i + at_a_time <= range.count) {
    update<at_a_time>(static_cast<const AdamwRange<T, M>&>(range), scale, i);
    return;
  }
  // Neighbouring threads take neighbouring elements, but for the end of a packed range.
  const std::int64_t first = begin + threadIdx.x * (range.packed ? at_a_time : 1);
  const std::int64_t stride = range.packed ? 1 : adamw_threads;
#pragma unroll 1
  for (std::int64_t i = first, k = 0; i < range.count && k < at_a_time; i += stride, ++k)
    update<1>(static_cast<const AdamwRange<T, M>&>(range), scale, i);
}

}  // namespace

template <class T, class M>
void run(const Queue& queue, std::span<const AdamwRange<T, M>> ranges, const GradientNorm* norm) {
  List<T, M> list;
  for (const AdamwRange<T, M>& range : ranges)
    if (range.count > 0)
      list.add({range, aligned(range.parameter, range.master, range.m, range.v, range.gradient)},
               per_block);
  if (list.blocks > 0)
    launch("adamw", adamw_kernel<T, M>, {static_cast<unsigned>(list.blocks), adamw_threads},
           queue.stream, list, norm);
}

template void run(const Queue&, std::span<const AdamwRange<float, float>>, const GradientNorm*);
template void run(const Queue&, std::span<const AdamwRange<float, Bf16>>, const GradientNorm*);
template void run(const Queue&, std::span<const AdamwRange<Bf16, float>>, const GradientNorm*);
template void run(const Queue&, std::span<const AdamwRange<Bf16, Bf16>>, const GradientNorm*);

}  // namespace trireme::ops::cuda
