// SPDX-License-Identifier: Apache-2.0
// The bias of products whose library has none; in elementwise.cu.
#pragma once

#include <cstdint>

#include "device/cuda/raw_stream.hpp"

namespace trireme::ops::cuda {

/// Every row of c = [rows, columns] becomes the bias, or grows by it. C and B are float or Bf16.
template <class C, class B>
void spread_bias(C* c,
                 const B* bias,
                 std::int64_t rows,
                 std::int64_t columns,
                 bool accumulate,
                 device::cuda::RawStream stream);

}  // namespace trireme::ops::cuda
