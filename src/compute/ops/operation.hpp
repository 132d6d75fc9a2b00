// SPDX-License-Identifier: Apache-2.0
// An operation is a struct with named fields: its operands, which are views, and its numbers. The
// struct in ops/x.hpp is the interface, the contract and what the bodies are given:
//
//   struct Add {
//     static constexpr const char* name = "add";  // in errors, and of the kernel
//     View sum;        ///< fp32
//     ConstView term;  ///< fp32, as many elements; may be sum
//     float factor = 1;
//   };
//   TRIREME_OPERATION(Add);
//
//   run(ops::Add{.sum = sum, .term = term}, stream);
//
// run() is in ops/x.cpp. It checks the contract and enqueues the body for the stream's device
// (dispatch.hpp): cpu/x.cpp or cuda/x.cu, a template over the type T of the elements, which is
// float or Bf16.
// 1. A struct owns nothing and is copied into streams and kernels: views, numbers and small structs
//    of them. Views are memory of the stream's device.
// 2. Shapes are those of dense, row-major views; "of T" is one dtype, fp32 or bf16, for all
//    operands of a struct. An operand overlaps another one only where its comment says that it may.
// 3. A field without a default must be given; compilers warn if it is missing. An operand that is
//    called optional may be omitted: its default is an empty view.
// 4. run() throws ContractError if sizes or dtypes violate the contract, and DeviceError if there
//    is no implementation for the device.
#pragma once

#include <cstddef>
#include <type_traits>

#include "base/view.hpp"
#include "device/cuda/raw_stream.hpp"

namespace trireme::device {
class Stream;
}

namespace trireme::ops {

namespace cpu {

/// Where a CPU body runs: on the threads of the parallel loops that the calling thread starts.
struct Threads {};

}  // namespace cpu

namespace cuda {

using device::cuda::RawStream;

/// Where a CUDA body enqueues its kernels.
struct Queue {
  RawStream stream;
  /// Scratch of `workspace_bytes`, whose contents do not persist; null and 0 for operations without
  /// `uses_workspace`.
  std::byte* workspace = nullptr;
  std::size_t workspace_bytes = 0;
};

}  // namespace cuda

/// Operations with `static constexpr bool uses_workspace = true`: sums over rows go through it on a
/// GPU.
template <class Operation>
concept UsesWorkspace = Operation::uses_workspace;

}  // namespace trireme::ops

/// Declares the bodies of an operation: dispatch.hpp finds them by the namespace of their first
/// argument.
#define TRIREME_BODIES(Operation)                           \
  namespace cpu {                                           \
  template <class T>                                        \
  void run(Threads where, const Operation& operation);      \
  }                                                         \
  namespace cuda {                                          \
  template <class T>                                        \
  void run(const Queue& queue, const Operation& operation); \
  }                                                         \
  static_assert(std::is_trivially_copyable_v<Operation>)

#define TRIREME_OPERATION(Operation)                            \
  void run(const Operation& operation, device::Stream& stream); \
  TRIREME_BODIES(Operation)

/// At the end of a file of bodies: those for float and Bf16.
#define TRIREME_CPU_BODIES(Operation)                  \
  template void run<float>(Threads, const Operation&); \
  template void run<Bf16>(Threads, const Operation&)
#define TRIREME_CUDA_BODIES(Operation)                      \
  template void run<float>(const Queue&, const Operation&); \
  template void run<Bf16>(const Queue&, const Operation&)
