// SPDX-License-Identifier: Apache-2.0
// From dtype-erased views to the body of one backend and one type; used by the x.cpp files only. An
// operation checks its shapes once, in x.cpp, makes its call (calls/call.hpp) and enqueues it: the
// CPU's body on the thread that the stream is on, or the GPU's, which enqueues kernels.
#pragma once

#include <utility>

#include "base/error.hpp"
#include "base/view.hpp"
#include "device/cpu/cpu_stream.hpp"
#include "device/cuda/handle.hpp"
#include "device/device.hpp"

#include "ops/calls/call.hpp"
#include "ops/dropout.hpp"

namespace trireme::ops {

/// Calls body(T{}) with T = float or Bf16. Throws ContractError for other dtypes.
template <class Body>
decltype(auto) with_float_type(DType dtype, Body&& body) {
  TRIREME_EXPECT(dtype == DType::f32 || dtype == DType::bf16, "an operation on {}", name(dtype));
  if (dtype == DType::bf16)
    return std::forward<Body>(body)(Bf16{});
  return std::forward<Body>(body)(float{});
}

/// On a GPU's stream calls body(raw stream) and returns true; elsewhere, and in a build without
/// CUDA, returns false. `body` is generic, so that nothing of it is compiled without CUDA:
///   if (on_cuda(stream, [&](auto raw) { cuda::gradient_norm(norm, from, clipping, raw); }))
///     return;
template <class Body>
bool on_cuda(device::Stream& stream, Body&& body) {
  if constexpr (device::cuda::in_this_build) {
    if (stream.device().kind() == device::Kind::cuda) {
      std::forward<Body>(body)(device::cuda::handle_of(stream));
      return true;
    }
  }
  return false;
}

/// `stream` as a CPU stream. Throws DeviceError when `operation` has no body for its device.
inline device::cpu::Stream& on_cpu(device::Stream& stream, const char* operation) {
  if (stream.device().kind() != device::Kind::cpu)
    throw DeviceError(stream.device().description(), operation,
                      "this build has the CPU's operations only", __FILE__, __LINE__);
  return device::cpu::stream_of(stream);
}

/// An empty view is a null pointer.
template <class T>
const T* pointer_or_null(ConstView view) {
  return view.empty() ? nullptr : view.as<T>();
}
template <class T>
T* pointer_or_null(View view) {
  return view.empty() ? nullptr : view.as<T>();
}

/// The CPU's body of `call`, on the CPU stream `stream`. Throws DeviceError on another device.
template <class Call>
void enqueue_on_cpu(const Call& call, device::Stream& stream) {
  on_cpu(stream, Call::name).run([call] { run(cpu::Threads{}, call); });
}

/// The body of `call` for the stream's device.
template <class Call>
void enqueue(const Call& call, device::Stream& stream) {
  const bool done = on_cuda(stream, [&](auto raw) {
    cuda::Queue queue{raw};
    if constexpr (UsesWorkspace<Call>) {
      queue.workspace = device::cuda::workspace_of(stream);
      queue.workspace_bytes = device::cuda::workspace_bytes;
    }
    run(queue, call);
  });
  if (!done)
    enqueue_on_cpu(call, stream);
}

inline void expect_valid(const Dropout& dropout) {
  TRIREME_EXPECT(dropout.rate >= 0 && dropout.rate < 1, "a dropout rate of {}", dropout.rate);
  TRIREME_EXPECT(!dropout.active() || dropout.first_sample != nullptr, "dropout {} of no sample",
                 dropout.rate);
}

}  // namespace trireme::ops
