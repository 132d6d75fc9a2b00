// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/loops.cuh"
#include "ops/low_rank.hpp"

namespace trireme::ops::cuda {
namespace {

constexpr int row_threads = 256;

__device__ inline double block_dot(const float* a, const float* b, std::int64_t length) {
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < length; i += row_threads)
    sum = fma(static_cast<double>(a[i]), static_cast<double>(b[i]), sum);
  const double total = block_tree<row_threads>(sum, [](double x, double y) { return x + y; });
  __syncthreads();  // the shared memory of the sum is used again
  return total;
}

/// As on a CPU. A thread reads and writes the same elements of all rows.
__device__ double subtract_projections(float* rows, std::int64_t index, std::int64_t length) {
  float* row = rows + index * length;
  for (int pass = 0; pass < 2; ++pass)
    for (const float* other = rows; other != row; other += length) {
      const auto part = static_cast<float>(block_dot(row, other, length));
      for (std::int64_t i = threadIdx.x; i < length; i += row_threads) row[i] -= part * other[i];
    }
  return sqrt(block_dot(row, row, length));
}

__global__ void orthonormalize_kernel(Orthonormalize call, std::int64_t length) {
  auto* rows = call.rows.as<float>();
  for (std::int64_t r = 0; r < call.count; ++r) {
    float* row = rows + r * length;
    const double before = sqrt(block_dot(row, row, length));
    double rest = 0;
    const auto to_unit = static_cast<float>(1 / before);
    if (before < static_cast<double>(INFINITY) && to_unit < INFINITY) {  // and is a number
      for (std::int64_t i = threadIdx.x; i < length; i += row_threads) row[i] *= to_unit;
      rest = subtract_projections(rows, r, length);
    }
    for (std::int64_t random = r; !(rest > least_rest); random += call.count) {
      for (std::int64_t i = threadIdx.x; i < length; i += row_threads)
        row[i] = replacement_element(random, i);
      rest = subtract_projections(rows, r, length);
    }
    const auto scale = static_cast<float>(1 / rest);
    for (std::int64_t i = threadIdx.x; i < length; i += row_threads) row[i] *= scale;
  }
}

struct SubtractLoop {
  SubtractFinite call;
  template <int N>
  __device__ void run(std::int64_t i) const {
    auto rest = load<N>(call.rest.as<float>() + i);
    const auto term = load<N>(call.term.as<float>() + i);
    for (int k = 0; k < N; ++k) rest.v[k] = finite_rest(rest.v[k], term.v[k]);
    store<N>(call.rest.as<float>() + i, rest);
  }
};

}  // namespace

template <class T>
void run(const Queue& queue, const Orthonormalize& call) {
  launch(call.name, orthonormalize_kernel, {1, row_threads}, queue.stream, call,
         call.rows.elements / call.count);
}

template <class T>
void run(const Queue& queue, const SubtractFinite& call) {
  loop<4>(call.name, SubtractLoop{call}, call.rest.elements, aligned(call.rest, call.term),
          queue.stream);
}

template void run<float>(const Queue&, const Orthonormalize&);
template void run<float>(const Queue&, const SubtractFinite&);

}  // namespace trireme::ops::cuda
