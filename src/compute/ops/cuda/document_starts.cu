// SPDX-License-Identifier: Apache-2.0
// A warp per row, 32 positions at a time: the last position with the token among those before a
// lane is a maximum over the lanes up to its own, and of what the positions before have left.
#include "ops/cuda/loops.cuh"
#include "ops/document_starts.hpp"

namespace trireme::ops::cuda {
namespace {

constexpr int warps = 4;

__global__ void starts_kernel(DocumentStarts call, std::int64_t rows) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * warps + threadIdx.y;
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
void run(const Queue& queue, const DocumentStarts& call) {
  const std::int64_t rows = call.tokens.elements / call.time;
  launch(call.name, starts_kernel,
         {static_cast<unsigned>(blocks_for(rows, warps)), dim3(warp_lanes, warps)}, queue.stream,
         call, rows);
}

template void run<std::int32_t>(const Queue&, const DocumentStarts&);

}  // namespace trireme::ops::cuda
