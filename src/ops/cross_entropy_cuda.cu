// SPDX-License-Identifier: Apache-2.0
// A block per row: one pass for the largest logit and the sum of exponentials together (each thread
// rescales its sum when it meets a larger logit), one more for the gradient, which may take the
// logits' place. Both directions read packs of the same width, so that their losses have the same
// bits. Source: Milakov, Gimelshein 2018, "Online normalizer calculation for softmax", algorithm 3.
#include "ops/cross_entropy_cuda.hpp"
#include "ops/cuda_loops.cuh"

namespace trireme::ops::cuda {
namespace {

constexpr int threads = 512;
/// Elements that a thread takes at a time: 16 bytes of bf16, twice 16 of fp32.
constexpr int width = 8;

/// Largest logit of a row and the sum of exp(logit - largest), on every thread.
struct Normalizer {
  float largest, sum;
};

template <int N, class T>
__device__ Normalizer normalizer_of(const T* row, std::int64_t vocabulary, float* shared) {
  float largest = -INFINITY, sum = 0;
  for (std::int64_t v = static_cast<std::int64_t>(threadIdx.x) * N; v < vocabulary;
       v += static_cast<std::int64_t>(threads) * N) {
    const auto pack = load<N>(row + v);
    float top = to_float(pack.v[0]);
    for (int k = 1; k < N; ++k) top = fmaxf(top, to_float(pack.v[k]));
    if (top > largest) {
      sum *= expf(largest - top);
      largest = top;
    }
    for (int k = 0; k < N; ++k) sum += expf(to_float(pack.v[k]) - largest);
  }
  const float top = block_max<threads>(largest, shared);
  // A thread without logits has nothing to rescale, and inf - inf is no number. A sum of NaN stays.
  const float mine = sum == 0.0F ? 0.0F : sum * expf(largest - top);
  return {top, block_sum<threads>(mine, shared)};
}

template <int N, class T>
__global__ void forward_kernel(float* losses,
                               const T* logits,
                               const std::int32_t* targets,
                               std::int64_t vocabulary) {
  __shared__ float shared[threads / warp_lanes];
  const std::int64_t row = blockIdx.x;
  const std::int32_t target = targets[row];
  if (target < 0) {
    if (threadIdx.x == 0)
      losses[row] = 0;
    return;
  }
  const T* mine = logits + row * vocabulary;
  const Normalizer n = normalizer_of<N>(mine, vocabulary, shared);
  if (threadIdx.x == 0)
    losses[row] = logf(n.sum) - (to_float(mine[target]) - n.largest);
}

template <int N, class T, class D>
__global__ void forward_backward_kernel(float* losses,
                                        D* gradient,
                                        const T* logits,
                                        const std::int32_t* targets,
                                        float scale,
                                        std::int64_t vocabulary) {
  __shared__ float shared[threads / warp_lanes];
  const std::int64_t row = blockIdx.x;
  const std::int32_t target = targets[row];
  const T* mine = logits + row * vocabulary;
  D* to = gradient + row * vocabulary;
  const std::int64_t first = static_cast<std::int64_t>(threadIdx.x) * N;
  constexpr std::int64_t step = static_cast<std::int64_t>(threads) * N;
  if (target < 0) {
    for (std::int64_t v = first; v < vocabulary; v += step) {
      Pack<D, N> nothing;
      for (D& value : nothing.v) value = from_float<D>(0.0F);
      store<N>(to + v, nothing);
    }
    if (threadIdx.x == 0)
      losses[row] = 0;
    return;
  }
  const float at_target = to_float(mine[target]);
  // The sums inside wait for all threads, so nobody overwrites the target before it is read.
  const Normalizer n = normalizer_of<N>(mine, vocabulary, shared);
  const float factor = scale / n.sum;
  for (std::int64_t v = first; v < vocabulary; v += step) {
    const auto pack = load<N>(mine + v);
    Pack<D, N> made;
    for (int k = 0; k < N; ++k) {
      const float probability = expf(to_float(pack.v[k]) - n.largest) * factor;
      made.v[k] = from_float<D>(v + k == target ? probability - scale : probability);
    }
    store<N>(to + v, made);
  }
  if (threadIdx.x == 0)
    losses[row] = logf(n.sum) - (at_target - n.largest);
}

}  // namespace

template <class T>
void cross_entropy_forward(float* losses,
                           const T* logits,
                           const std::int32_t* targets,
                           std::int64_t rows,
                           std::int64_t vocabulary,
                           RawStream stream) {
  const auto blocks = static_cast<unsigned>(rows);
  const bool packed = vocabulary % width == 0 && aligned(logits);
  launch("cross_entropy_forward", packed ? forward_kernel<width, T> : forward_kernel<1, T>,
         {blocks, threads}, stream, losses, logits, targets, vocabulary);
}

template <class T, class D>
void cross_entropy_forward_backward(float* losses,
                                    D* gradient,
                                    const T* logits,
                                    const std::int32_t* targets,
                                    float scale,
                                    std::int64_t rows,
                                    std::int64_t vocabulary,
                                    RawStream stream) {
  const auto blocks = static_cast<unsigned>(rows);
  const bool packed = vocabulary % width == 0 && aligned(logits, gradient);
  launch("cross_entropy_forward_backward",
         packed ? forward_backward_kernel<width, T, D> : forward_backward_kernel<1, T, D>,
         {blocks, threads}, stream, losses, gradient, logits, targets, scale, vocabulary);
}

#define TRIREME_INSTANTIATE(T)                                                             \
  template void cross_entropy_forward(float*, const T*, const std::int32_t*, std::int64_t, \
                                      std::int64_t, RawStream);
TRIREME_INSTANTIATE(float)
TRIREME_INSTANTIATE(Bf16)
#undef TRIREME_INSTANTIATE
#define TRIREME_INSTANTIATE(T, D)                                                                \
  template void cross_entropy_forward_backward(float*, D*, const T*, const std::int32_t*, float, \
                                               std::int64_t, std::int64_t, RawStream);
TRIREME_INSTANTIATE(float, float)
TRIREME_INSTANTIATE(float, Bf16)
TRIREME_INSTANTIATE(Bf16, Bf16)
#undef TRIREME_INSTANTIATE

}  // namespace trireme::ops::cuda
