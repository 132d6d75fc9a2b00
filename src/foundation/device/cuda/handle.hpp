// SPDX-License-Identifier: Apache-2.0
// What operations need of a CUDA stream, without CUDA's headers: this file is included
// whether or not the build has CUDA.
//
// 1. handle_of() makes the stream's GPU the current one of the calling thread, so kernels may be
//    launched from any thread.
// 2. A stream has one workspace. Operations on one stream run one after another, so they share it;
//    nothing in it survives an operation.
#pragma once

#include <cstddef>
#include <memory>
#include <typeindex>

#include "device/cuda/raw_stream.hpp"
#include "device/device.hpp"

namespace trireme::device::cuda {

#ifdef TRIREME_HAVE_CUDA
inline constexpr bool in_this_build = true;
#else
inline constexpr bool in_this_build = false;
#endif

/// `stream` as a CUDA stream. Throws ContractError when it belongs to another device.
RawStream handle_of(device::Stream& stream);

/// Scratch on `stream`, of workspace_bytes or more. Allocated at the first call for a stream, and
/// anew, when the stream is done, at the first that wants more; neither while the stream is
/// captured.
std::byte* workspace_of(device::Stream& stream);
std::byte* workspace_of(device::Stream& stream, std::size_t bytes);
/// Counters of kernels whose last block does what is left when all blocks are done: num_counters of
/// them, zero, beside the workspace. A kernel leaves them zero.
unsigned* counters_of(device::Stream& stream);
inline constexpr std::size_t num_counters = 64;
/// Source: what PyTorch and llm.c give cuBLASLt on Hopper (pytorch#120925).
inline constexpr std::size_t workspace_bytes = std::size_t{32} << 20U;

/// Makes the GPU the current one of the calling thread.
void make_current(device::Device& device);

/// A library's handle, made once per device and destroyed before its memory: the object that
/// `make` returns, kept under `type`.
std::shared_ptr<void> kept_with(device::Device& device,
                                std::type_index type,
                                std::shared_ptr<void> (*make)());

template <class T>
T& kept_with(device::Device& device) {
  const auto kept = kept_with(device, typeid(T),
                              [] { return std::static_pointer_cast<void>(std::make_shared<T>()); });
  return *static_cast<T*>(kept.get());
}

}  // namespace trireme::device::cuda
