// SPDX-License-Identifier: Apache-2.0
// The interface of a CUDA stream for operations, without CUDA's headers, so that builds without
// CUDA can include it.
//
// 1. handle_of() makes the stream's GPU current for the calling thread, so kernels may be launched
//    from any thread.
// 2. A stream has one workspace. Operations on one stream run one after another and share it; its
//    content is undefined after an operation.
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

/// Scratch on `stream`, of workspace_bytes or more. Allocated at the first call for a stream; a
/// call that needs more waits for the stream and reallocates. Must not allocate during a capture.
std::byte* workspace_of(device::Stream& stream);
std::byte* workspace_of(device::Stream& stream, std::size_t bytes);
/// Source: workspace of cuBLASLt on Hopper in PyTorch and llm.c (pytorch#120925).
inline constexpr std::size_t workspace_bytes = std::size_t{32} << 20U;

/// Makes the GPU current for the calling thread.
void make_current(device::Device& device);

/// An object that is created once per device, such as a library's handle, and destroyed before the
/// device's memory. `make` creates it at the first call with `type`.
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
