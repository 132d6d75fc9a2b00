// SPDX-License-Identifier: Apache-2.0
// CPU bodies of activations.hpp; T is float or Bf16.
#pragma once

#include <cstdint>

namespace trireme::ops::cpu {

template <class T>
void squared_relu_forward(T* y, const T* x, std::int64_t count);
template <class T>
void squared_relu_backward(T* dx, const T* dy, const T* x, std::int64_t count);
template <class T>
void swiglu_forward(T* y, const T* x, std::int64_t rows, std::int64_t columns);
template <class T>
void swiglu_backward(T* dx, const T* dy, const T* x, std::int64_t rows, std::int64_t columns);

}  // namespace trireme::ops::cpu
