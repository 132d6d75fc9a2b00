// SPDX-License-Identifier: Apache-2.0
// A *call* is what an operation hands to its bodies once x.cpp has seen that shapes and dtypes
// agree: pointers, sizes and options in one struct, x.hpp of this folder. It is declared once and
// serves the CPU's body (cpu/x.cpp), the GPU's (cuda/x.cu) and the dispatch between them.
//
//   template <class T>
//   struct GeluForward {
//     static constexpr const char* name = "gelu_forward";   in errors, and of the kernel
//     T* y;
//     ...
//   };
//   namespace cpu  { template <class T> void run(Threads, const GeluForward<T>& call); }
//   namespace cuda { template <class T> void run(const Queue& queue, const GeluForward<T>& call); }
//
// 1. A call owns nothing and is copied into streams and kernels: pointers, numbers and small
//    structs of them.
// 2. Pointers are memory of the body's device; what may be null, and what may overlap, is in the
//    operation's contract (ops/x.hpp).
// 3. The first argument says where a body runs, and is how dispatch.hpp finds it: by the namespace
//    of its type.
#pragma once

#include <cstddef>

#include "base/dtype.hpp"
#include "device/cuda/raw_stream.hpp"

namespace trireme::ops {

namespace cpu {

/// The threads of the parallel loops that the calling thread starts.
struct Threads {};

}  // namespace cpu

namespace cuda {

using device::cuda::RawStream;

/// Where a CUDA body enqueues its kernels.
struct Queue {
  RawStream stream;
  /// Scratch of `workspace_bytes`, which nothing survives; null and 0 for calls that do not say
  /// `uses_workspace`.
  std::byte* workspace = nullptr;
  std::size_t workspace_bytes = 0;
};

}  // namespace cuda

/// Calls with `static constexpr bool uses_workspace = true`: sums over rows go through it on a GPU.
template <class Call>
concept UsesWorkspace = Call::uses_workspace;

}  // namespace trireme::ops

/// At the end of a file of bodies: those of Call<float> and Call<Bf16>.
#define TRIREME_CPU_BODIES(Call)                  \
  template void run(Threads, const Call<float>&); \
  template void run(Threads, const Call<Bf16>&)
#define TRIREME_CUDA_BODIES(Call)                      \
  template void run(const Queue&, const Call<float>&); \
  template void run(const Queue&, const Call<Bf16>&)
