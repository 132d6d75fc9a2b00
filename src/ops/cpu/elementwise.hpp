// SPDX-License-Identifier: Apache-2.0
// CPU bodies of elementwise.hpp; T, From and To are float or Bf16. What may be the
// same memory is in the contract. bias_backward adds to db the sums over rows, which are cut into
// runs by shape alone.
#pragma once

#include <cstdint>

#include "ops/dropout.hpp"

namespace trireme::ops::cpu {

template <class T>
void gelu_forward(T* y, const T* x, std::int64_t count);
template <class T>
void gelu_backward(T* dx, const T* dy, const T* x, std::int64_t count);
template <class T>
void dropout_backward(
    T* dbranch, const T* dy, std::int64_t rows, std::int64_t columns, const Dropout& d);
template <class T>
void bias_backward(float* db, const T* dy, std::int64_t rows, std::int64_t columns);
void add(float* sum, const float* term, std::int64_t count);
template <class To, class From>
void cast(To* to, const From* from, std::int64_t count);

}  // namespace trireme::ops::cpu
