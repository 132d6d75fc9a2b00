// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/loops.cuh"
#include "ops/optimizer/orthogonalize_passes.hpp"

namespace trireme::ops::cuda {
namespace {

constexpr int norm_threads = 256;
constexpr int scaled_per_thread = 16;
constexpr int at_a_time = 4;

__device__ inline double block_total(double value) {
  return block_tree<norm_threads>(value, [](double a, double b) { return a + b; });
}

__global__ void squares_kernel(double* sums, const float* matrix, std::int64_t count) {
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * elements_per_sum;
  const std::int64_t end = begin + elements_per_sum < count ? begin + elements_per_sum : count;
  double squares = 0;
  for (std::int64_t i = begin + threadIdx.x; i < end; i += norm_threads) {
    const auto one = static_cast<double>(matrix[i]);
    squares = fma(one, one, squares);
  }
  const double total = block_total(squares);
  if (threadIdx.x == 0)
    sums[blockIdx.x] = total;
}

/// Every block adds up all sums and scales its own elements.
template <class T>
__global__ void normalize_kernel(Normalize call) {
  double squares = 0;
  for (std::int64_t i = threadIdx.x; i < call.sums.elements; i += norm_threads)
    squares += call.sums.as<double>()[i];
  const auto scale =
      static_cast<float>(1.0 / (call.factor * sqrt(block_total(squares)) + call.guard));
  std::int64_t i =
      static_cast<std::int64_t>(blockIdx.x) * norm_threads * scaled_per_thread + threadIdx.x;
  for (int k = 0; k < scaled_per_thread && i < call.x.elements; ++k, i += norm_threads)
    call.x.as<T>()[i] = from_float<T>(scale * call.matrix.as<float>()[i]);
}

template <class T>
struct CombineLoop {
  Combine call;
  template <int N>
  __device__ void run(std::int64_t i) const {
    const auto gram = load<N>(call.gram.as<T>() + i);
    auto squared = load<N>(call.squared.as<T>() + i);
    for (int k = 0; k < N; ++k) {
      const float sum = fmaf(call.numbers.b, to_float(gram.v[k]),
                             __fmul_rn(call.numbers.c, to_float(squared.v[k])));
      const bool diagonal = (i + k) % (call.n + 1) == 0;
      squared.v[k] = from_float<T>(diagonal ? sum + call.numbers.a : sum);
    }
    store<N>(call.squared.as<T>() + i, squared);
  }
};

}  // namespace

template <class T>
void run(const Queue& queue, const Normalize& call) {
  launch("squares", squares_kernel, {static_cast<unsigned>(call.sums.elements), norm_threads},
         queue.stream, call.sums.as<double>(), call.matrix.as<float>(), call.x.elements);
  const std::int64_t blocks =
      blocks_for(call.x.elements, std::int64_t{norm_threads} * scaled_per_thread);
  launch(call.name, normalize_kernel<T>, {static_cast<unsigned>(blocks), norm_threads},
         queue.stream, call);
}

template <class T>
void run(const Queue& queue, const Combine& call) {
  loop<at_a_time>(call.name, CombineLoop<T>{call}, call.n * call.n,
                  aligned(call.squared, call.gram), queue.stream);
}

TRIREME_CUDA_BODIES(Normalize);
TRIREME_CUDA_BODIES(Combine);

}  // namespace trireme::ops::cuda
