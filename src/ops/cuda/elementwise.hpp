// SPDX-License-Identifier: Apache-2.0
// CUDA bodies of elementwise.hpp; T, From and To are float or Bf16. Enqueued on `stream`; pointers
// are memory of its GPU. Sums over rows go through `workspace` in a fixed order: parts of the rows
// first, then the parts, so that runs repeat to the bit.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/cuda/raw_stream.hpp"

#include "ops/dropout.hpp"

namespace trireme::ops::cuda {

using device::cuda::RawStream;

template <class T>
void gelu_forward(T* y, const T* x, std::int64_t count, RawStream stream);
template <class T>
void gelu_backward(T* dx, const T* dy, const T* x, std::int64_t count, RawStream stream);
template <class T>
void dropout_backward(T* dbranch,
                      const T* dy,
                      std::int64_t rows,
                      std::int64_t columns,
                      const Dropout& d,
                      RawStream stream);
/// `workspace`: device::cuda::workspace_of(stream).
template <class T>
void bias_backward(float* db,
                   const T* dy,
                   std::int64_t rows,
                   std::int64_t columns,
                   std::byte* workspace,
                   std::size_t workspace_bytes,
                   RawStream stream);
void add(float* sum, const float* term, std::int64_t count, RawStream stream);
template <class To, class From>
void cast(To* to, const From* from, std::int64_t count, RawStream stream);
/// Every row of c = [rows, columns] becomes the bias, or grows by it.
template <class C, class B>
void spread_bias(C* c,
                 const B* bias,
                 std::int64_t rows,
                 std::int64_t columns,
                 bool accumulate,
                 RawStream stream);

}  // namespace trireme::ops::cuda
