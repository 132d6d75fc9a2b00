// SPDX-License-Identifier: Apache-2.0
// CUDA bodies of activations.hpp; T is float or Bf16. swiglu: x = [rows, 2 columns], gates first;
// y = [rows, columns]. Enqueued on `stream`.
#pragma once

#include <cstdint>

#include "device/cuda/raw_stream.hpp"

namespace trireme::ops::cuda {

using device::cuda::RawStream;

template <class T>
void squared_relu_forward(T* y, const T* x, std::int64_t count, RawStream stream);
template <class T>
void squared_relu_backward(T* dx, const T* dy, const T* x, std::int64_t count, RawStream stream);
template <class T>
void swiglu_forward(T* y, const T* x, std::int64_t rows, std::int64_t columns, RawStream stream);
template <class T>
void swiglu_backward(
    T* dx, const T* dy, const T* x, std::int64_t rows, std::int64_t columns, RawStream stream);

}  // namespace trireme::ops::cuda
