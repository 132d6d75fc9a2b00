// SPDX-License-Identifier: Apache-2.0
// Selects the body of an operation (operation.hpp) for a device and a type; used by the x.cpp files
// only. They check the contract once. Then the body is enqueued: the CPU's on the thread of the
// stream, or the GPU's, which enqueues kernels.
#pragma once

#include <initializer_list>
#include <utility>

#include "base/error.hpp"
#include "base/view.hpp"
#include "device/cpu/cpu_stream.hpp"
#include "device/cuda/handle.hpp"
#include "device/device.hpp"

#include "ops/dropout.hpp"
#include "ops/operation.hpp"
#include "ops/rotary.hpp"

namespace trireme::ops {

/// The contract of an operation for one operand.
struct Operand {
  const char* name;
  ConstView view;
  std::int64_t elements;
  DType dtype;  ///< ignored if there are no elements
};

inline Operand optional(Operand operand) {
  if (operand.view.empty())
    operand.elements = 0;
  return operand;
}

/// Throws ContractError if an operand of `operation` has the wrong size or dtype.
inline void expect_operands(const char* operation, std::initializer_list<Operand> operands) {
  for (const Operand& o : operands)
    TRIREME_EXPECT(o.view.elements == o.elements && (o.elements == 0 || o.view.dtype == o.dtype),
                   "{}: {} is {} {}, and has to be {} {}", operation, o.name, o.view.elements,
                   trireme::name(o.view.dtype), o.elements, trireme::name(o.dtype));
}

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
                      "this build has the CPU's operations only");
  return device::cpu::stream_of(stream);
}

/// The CPU's body for elements of type T. Throws DeviceError if `stream` is not a CPU's.
template <class T, class Operation>
void enqueue_on_cpu(const Operation& operation, device::Stream& stream) {
  on_cpu(stream, Operation::name).run([operation] { run<T>(cpu::Threads{}, operation); });
}

/// The body for elements of type T and the stream's device.
template <class T, class Operation>
void enqueue(const Operation& operation, device::Stream& stream) {
  const bool done = on_cuda(stream, [&](auto raw) {
    cuda::Queue queue{raw};
    if constexpr (UsesWorkspace<Operation>) {
      queue.workspace = device::cuda::workspace_of(stream);
      queue.workspace_bytes = device::cuda::workspace_bytes;
    }
    run<T>(queue, operation);
  });
  if (!done)
    enqueue_on_cpu<T>(operation, stream);
}

/// The body for elements of this dtype. Throws ContractError if it is neither fp32 nor bf16.
template <class Operation>
void enqueue(const Operation& operation, DType dtype, device::Stream& stream) {
  with_float_type(dtype, [&](auto zero) { enqueue<decltype(zero)>(operation, stream); });
}

/// Throws ContractError if `view` does not consist of rows of `columns` elements.
inline void expect_rows(ConstView view, std::int64_t columns) {
  TRIREME_EXPECT(columns >= 1 && view.elements % columns == 0, "{} elements in rows of {}",
                 view.elements, columns);
}

/// Throws ContractError if rows have no position of their own, or the table has none for them
/// (rotary.hpp). An empty table is not checked.
inline void expect_positions(const char* operation,
                             ConstView table,
                             ConstView positions,
                             std::int64_t rows,
                             const RotaryShape& shape) {
  expect_operands(operation, {optional({"positions", positions, rows, DType::i32}),
                              {"table", table, table.elements, DType::f32}});
  const std::int64_t known = table.elements / shape.head_channels;
  TRIREME_EXPECT(
      !positions.empty() || (rows % shape.time == 0 && (table.empty() || known >= shape.time)),
      "{}: {} rows in sequences of {}, a table of {} positions", operation, rows, shape.time,
      known);
}

inline void expect_valid(const Dropout& dropout) {
  TRIREME_EXPECT(dropout.rate >= 0 && dropout.rate < 1, "a dropout rate of {}", dropout.rate);
  TRIREME_EXPECT(!dropout.active() || dropout.first_sample != nullptr, "dropout {} of no sample",
                 dropout.rate);
}

}  // namespace trireme::ops
