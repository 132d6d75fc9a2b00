// SPDX-License-Identifier: Apache-2.0
// All operations use explicit rounding (the _rn functions and fmaf), so that the compiler cannot
// contract the packed and the single loop differently: the bits do not depend on shard boundaries.
#include "ops/cuda/moment_rounding.cuh"
#include "ops/cuda/pieces.cuh"
#include "ops/optimizer/adamw.hpp"

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

/// An Adamw without the fields that all ranges share: a kernel's arguments have room for 30.
template <class T, class M>
struct Range {
  T* parameter;
  float* master;
  M* m;
  M* v;
  const float* gradient;
  std::int64_t count;
  AdamwStep step;
  MomentRounding rounding;
  bool packed;  // its addresses allow at_a_time
};

template <int N, class T, class M>
__device__ inline void update(const Range<T, M>& range, float scale, std::int64_t i) {
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
using List = PieceList<Range<T, M>, static_cast<int>(most_adamw_ranges)>;

template <class T, class M>
__global__ void __launch_bounds__(adamw_threads, 4)
    adamw_kernel(const __grid_constant__ List<T, M> list, const GradientNorm* norm) {
  if (norm->finite == 0)
    return;
  const float scale = norm->scale;
  const auto block = static_cast<std::int32_t>(blockIdx.x);
  const int which = list.piece_of(block);
  const Range<T, M>& range = list.pieces[which];
  const std::int64_t begin = (block - list.first_block[which]) * per_block;
  if (const std::int64_t i = begin + threadIdx.x * at_a_time;
      range.packed && i + at_a_time <= range.count) {
    update<at_a_time>(range, scale, i);
    return;
  }
  // Neighbouring threads take neighbouring elements, except at the end of a packed range.
  const std::int64_t first = begin + threadIdx.x * (range.packed ? at_a_time : 1);
  const std::int64_t stride = range.packed ? 1 : adamw_threads;
#pragma unroll 1
  for (std::int64_t i = first, k = 0; i < range.count && k < at_a_time; i += stride, ++k)
    update<1>(range, scale, i);
}

template <class T, class M>
void launch_list(const Queue& queue, std::span<const Adamw> ranges) {
  List<T, M> list;
  for (const Adamw& r : ranges)
    if (r.parameter.elements > 0)
      list.add({r.parameter.as<T>(), r.master.as<float>(), r.m.as<M>(), r.v.as<M>(),
                r.gradient.as<float>(), r.parameter.elements, r.step, r.rounding,
                aligned(r.parameter, r.master, r.m, r.v, r.gradient)},
               per_block);
  if (list.blocks > 0)
    launch(Adamw::name, adamw_kernel<T, M>, {static_cast<unsigned>(list.blocks), adamw_threads},
           queue.stream, list, ranges.front().norm);
}

}  // namespace

template <class T>
void run(const Queue& queue, std::span<const Adamw> ranges) {
  if (ranges.front().m.dtype == DType::bf16)
    launch_list<T, Bf16>(queue, ranges);
  else
    launch_list<T, float>(queue, ranges);
}

template void run<float>(const Queue&, std::span<const Adamw>);
template void run<Bf16>(const Queue&, std::span<const Adamw>);

}  // namespace trireme::ops::cuda
