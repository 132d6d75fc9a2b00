// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/columns.cuh"
#include "ops/cuda/dropout.cuh"
#include "ops/cuda/loops.cuh"
#include "ops/elementwise.hpp"

namespace trireme::ops::cuda {
namespace {

template <class T>
struct DropoutBackwardLoop {
  DropoutBackward call;
  template <int N>
  __device__ void run(std::int64_t i) const {
    auto pack = load<N>(call.dy.as<T>() + i);
    float values[N];
    for (int k = 0; k < N; ++k) values[k] = to_float(pack.v[k]);
    drop<N>(values, call.dropout, i / call.elements_per_sample, i % call.elements_per_sample);
    for (int k = 0; k < N; ++k) pack.v[k] = from_float<T>(values[k]);
    store<N>(call.dbranch.as<T>() + i, pack);
  }
};

struct AddLoop {
  Add call;
  template <int N>
  __device__ void run(std::int64_t i) const {
    auto pack = load<N>(call.sum.as<float>() + i);
    const auto other = load<N>(call.term.as<float>() + i);
    for (int k = 0; k < N; ++k) pack.v[k] += call.factor * other.v[k];
    store<N>(call.sum.as<float>() + i, pack);
  }
};

template <class To, class From>
struct CastLoop {
  Cast call;
  template <int N>
  __device__ void run(std::int64_t i) const {
    const auto in = load<N>(call.from.as<From>() + i);
    Pack<To, N> out;
    for (int k = 0; k < N; ++k) out.v[k] = from_float<To>(call.factor * to_float(in.v[k]));
    store<N>(call.to.as<To>() + i, out);
  }
};

template <class C, class B>
struct SpreadBiasLoop {
  SpreadBias call;
  template <int N>
  __device__ void run(std::int64_t i) const {
    C& c = call.c.as<C>()[i];
    c = from_float<C>(to_float(call.bias.as<B>()[i % call.bias.elements]) +
                      (call.accumulate ? to_float(c) : 0.0F));
  }
};

template <class T>
struct BiasTerms {
  BiasBackward call;
  template <int N>
  __device__ void add(float (&sums)[1][N], std::int64_t row, std::int64_t column) const {
    const auto pack = load<N>(call.dy.as<T>() + row * call.db.elements + column);
    for (int k = 0; k < N; ++k) sums[0][k] += to_float(pack.v[k]);
  }
};

constexpr int rows_per_block = 4;

/// A warp per row, 32 positions at a time: the last position with the token among those before a
/// lane is a maximum over the lanes up to its own, and of what the positions before have left.
__global__ void starts_kernel(DocumentStarts call, std::int64_t rows) {
  const std::int64_t row = row_of_warp();
  if (row >= rows)
    return;
  const int lane = static_cast<int>(threadIdx.x);
  int before = 0;
  for (std::int64_t begin = 0; begin < call.time; begin += warp_lanes) {
    const std::int64_t t = begin + lane;
    int start = before;
    if (t < call.time && call.tokens.as<std::int32_t>()[row * call.time + t] == call.token)
      start = static_cast<int>(t);
    for (int lanes = 1; lanes < warp_lanes; lanes *= 2) {
      const int earlier = __shfl_sync(0xffffffffU, start, lane >= lanes ? lane - lanes : lane);
      start = earlier > start ? earlier : start;
    }
    if (t < call.time)
      call.starts.as<std::int32_t>()[row * call.time + t] = start;
    before = __shfl_sync(0xffffffffU, start, warp_lanes - 1);
  }
}

}  // namespace

template <class T>
void run(const Queue& queue, const DropoutBackward& call) {
  constexpr int N = pack_elements<T>;
  loop<N>(call.name, DropoutBackwardLoop<T>{call}, call.dy.elements,
          aligned(call.dbranch, call.dy) && call.elements_per_sample % N == 0, queue.stream);
}

template <class T>
void run(const Queue& queue, const BiasBackward& call) {
  constexpr int N = pack_elements<T>;
  add_column_sums<1, N>(call.name, BiasTerms<T>{call}, {call.db.as<float>()}, call.rows(),
                        call.db.elements, aligned(call.dy) && call.db.elements % N == 0, queue);
}

template <class T>
void run(const Queue& queue, const Add& call) {
  loop<4>(call.name, AddLoop{call}, call.sum.elements, aligned(call.sum, call.term), queue.stream);
}

template <class To>
void run(const Queue& queue, const Cast& call) {
  const auto run_from = [&](auto zero) {
    using From = decltype(zero);
    constexpr int width = std::max(pack_elements<To>, pack_elements<From>);
    loop<width>(call.name, CastLoop<To, From>{call}, call.to.elements, aligned(call.to, call.from),
                queue.stream);
  };
  if (call.from.dtype == DType::bf16)
    run_from(Bf16{});
  else
    run_from(0.0F);
}

template <class C>
void run(const Queue& queue, const SpreadBias& call) {
  if (call.bias.dtype == DType::bf16)
    loop<1>(call.name, SpreadBiasLoop<C, Bf16>{call}, call.c.elements, false, queue.stream);
  else
    loop<1>(call.name, SpreadBiasLoop<C, float>{call}, call.c.elements, false, queue.stream);
}

TRIREME_CUDA_BODIES(DropoutBackward);
TRIREME_CUDA_BODIES(BiasBackward);
template void run<float>(const Queue&, const Add&);
TRIREME_CUDA_BODIES(Cast);
TRIREME_CUDA_BODIES(SpreadBias);

template <class T>
void run(const Queue& queue, const DocumentStarts& call) {
  const std::int64_t rows = call.tokens.elements / call.time;
  launch(call.name, starts_kernel, warp_per_row(rows, rows_per_block), queue.stream, call, rows);
}

template void run<std::int32_t>(const Queue&, const DocumentStarts&);

}  // namespace trireme::ops::cuda
