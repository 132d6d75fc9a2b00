// SPDX-License-Identifier: Apache-2.0
// A block per row: one pass for the largest logit and the sum of exponentials together (each thread
// rescales its sum when it meets a larger logit), one more for the gradient, which may take the
// logits' place. The second pass runs backwards, so that it begins with what the caches still hold;
// two blocks fill a multiprocessor, whose first-level cache holds two rows of 50 thousand in bf16.
// Losses have the same bits with and without gradients. Source: Milakov, Gimelshein 2018, "Online
// normalizer calculation for softmax", algorithm 3.
#include "ops/cross_entropy.hpp"
#include "ops/cuda/loops.cuh"

namespace trireme::ops::cuda {
namespace {

constexpr int threads = 1024;
constexpr int blocks_per_multiprocessor = 2;
/// Elements that a thread takes at a time: 16 bytes of bf16, twice 16 of fp32.
constexpr int width = 8;

/// Faster than expf(): one multiplication and the hardware's power of two.
__device__ inline float exponential(float x) {
  constexpr float log2_e = 1.44269504F;
  return exp2f(x * log2_e);
}

/// The logits as the loss uses them: unchanged or capped.
struct Uncapped {
  explicit Uncapped(const LossTerms& /*terms*/) {}
  __device__ float operator()(float logit) const { return logit; }
  /// The gradient of a logit, from the gradient of its capped value `seen`.
  __device__ float gradient(float outer, float /*seen*/) const { return outer; }
};

/// The product is never fused with a following subtraction, which would make the bits depend on the
/// kernel.
struct Capped {
  explicit Capped(const LossTerms& terms) : cap(terms.softcap), inverse(1.0F / terms.softcap) {}
  __device__ float operator()(float logit) const { return __fmul_rn(cap, tanhf(logit * inverse)); }
  __device__ float gradient(float outer, float seen) const {
    const float t = seen * inverse;
    return outer * (1.0F - t * t);
  }

  float cap, inverse;
};

struct CapLogitsLoop {
  float* logits;
  Capped cap;

  template <int N>
  __device__ void run(std::int64_t i) const {
    Pack<float, N> pack = load<N>(logits + i);
    for (float& value : pack.v) value = cap(value);
    store<N>(logits + i, pack);
  }
};

/// Largest logit of a row and the sum of exp(logit - largest), on every thread.
struct Normalizer {
  float largest, sum;
};

template <int N, class T, class Cap>
__device__ Normalizer normalizer_of(const T* row, Cap cap, int vocabulary, float* shared) {
  float largest = -INFINITY, sum = 0;
  for (int v = static_cast<int>(threadIdx.x) * N; v < vocabulary; v += threads * N) {
    const auto pack = load<N>(row + v);
    float top = to_float(pack.v[0]);
    for (int k = 1; k < N; ++k) top = fmaxf(top, to_float(pack.v[k]));
    top = cap(top);  // preserves their order
    if (top > largest) {
      sum *= exponential(largest - top);
      largest = top;
    }
    for (int k = 0; k < N; ++k) sum += exponential(cap(to_float(pack.v[k])) - largest);
  }
  const float top = block_max<threads>(largest, shared);
  // A thread without logits has nothing to rescale, and inf - inf would be NaN. A NaN sum is kept.
  const float mine = sum == 0.0F ? 0.0F : sum * exponential(largest - top);
  return {top, block_sum<threads>(mine, shared)};
}

template <int N, class Cap, class T, class D>
__global__ __launch_bounds__(threads,
                             blocks_per_multiprocessor) void cross_entropy_kernel(CrossEntropy call,
                                                                                  Cap cap,
                                                                                  int vocabulary) {
  __shared__ float shared[threads / warp_lanes];
  const std::int64_t row = blockIdx.x;
  const std::int32_t target = call.targets.as<std::int32_t>()[row];
  const T* mine = call.logits.as<T>() + row * vocabulary;
  const bool forward_alone = call.d_logits.empty();
  D* to = forward_alone ? nullptr : call.d_logits.as<D>() + row * vocabulary;
  const int first = static_cast<int>(threadIdx.x) * N;
  constexpr int step = threads * N;
  if (target < 0) {
    for (int v = first; v < vocabulary && !forward_alone; v += step) {
      Pack<D, N> nothing;
      for (D& value : nothing.v) value = from_float<D>(0.0F);
      store<N>(to + v, nothing);
    }
    if (threadIdx.x == 0)
      call.losses.as<float>()[row] = 0;
    return;
  }
  const float at_target = cap(to_float(mine[target]));
  // The sums inside wait for all threads, so no thread overwrites the target before it is read.
  const Normalizer n = normalizer_of<N>(mine, cap, vocabulary, shared);
  if (threadIdx.x == 0)
    call.losses.as<float>()[row] = logf(n.sum) - (at_target - n.largest);
  if (forward_alone)
    return;
  float factor = call.scale / n.sum;
  const float twice_z_loss = 2.0F * call.terms.z_loss;
  if (twice_z_loss > 0)
    factor *= 1.0F + twice_z_loss * (n.largest + logf(n.sum));
  const auto scaled_probability = [&](float seen) {
    return exponential(seen - n.largest) * factor;
  };
  if (first < vocabulary)
    for (int v = first + (vocabulary - 1 - first) / step * step; v >= 0; v -= step) {
      const auto pack = load<N>(mine + v);
      Pack<D, N> made;
      for (int k = 0; k < N; ++k) {
        const float seen = cap(to_float(pack.v[k]));
        made.v[k] = from_float<D>(cap.gradient(scaled_probability(seen), seen));
      }
      store<N>(to + v, made);
    }
  // The thread that has just written this element overwrites it.
  if (target / N % threads == static_cast<int>(threadIdx.x))
    to[target] = from_float<D>(cap.gradient(scaled_probability(at_target) - call.scale, at_target));
}

template <class Body>
void with_cap(const LossTerms& terms, Body body) {
  if (terms.capped())
    body(Capped(terms));
  else
    body(Uncapped(terms));
}

template <class T, class D>
void run_into(const Queue& queue, const CrossEntropy& call) {
  const auto vocabulary = static_cast<int>(call.vocabulary());  // targets are 32 bits
  const bool packed = vocabulary % width == 0 && aligned(call.logits, call.d_logits);
  with_cap(call.terms, [&](auto cap) {
    using Cap = decltype(cap);
    launch(call.name,
           packed ? cross_entropy_kernel<width, Cap, T, D> : cross_entropy_kernel<1, Cap, T, D>,
           {static_cast<unsigned>(call.targets.elements), threads}, queue.stream, call, cap,
           vocabulary);
  });
}

}  // namespace

template <class T>
void run(const Queue& queue, const CrossEntropy& call) {
  if (call.d_logits.dtype == DType::bf16)
    run_into<T, Bf16>(queue, call);
  else
    run_into<T, T>(queue, call);
}

template <class T>
void run(const Queue& queue, const CapLogits& call) {
  loop<4>(call.name, CapLogitsLoop{call.logits.as<T>(), Capped(call.terms)}, call.logits.elements,
          aligned(call.logits), queue.stream);
}

TRIREME_CUDA_BODIES(CrossEntropy);
template void run<float>(const Queue&, const CapLogits&);

}  // namespace trireme::ops::cuda
