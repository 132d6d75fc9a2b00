// SPDX-License-Identifier: Apache-2.0
// Matrix products by our own AVX-512 kernels: fp32, and bf16 where the processor multiplies pairs
// of bf16. B is packed into panels that stay in the second-level cache while the rows of A pass by.
//
// 1. The bits of an element of C depend on its row of A, its column of B, and K: not on the other
//    rows and columns, nor on threads.
// 2. A product of two bf16 pairs is added in fp32; denormals count as zero there (the instruction's
//    own rule).
#pragma once

#include <memory>

#include "ops/matmul_backend.hpp"

namespace trireme::ops::cpu::avx512 {

/// Whether this processor and these dtypes can.
bool multiplies(const MatmulShape& shape);

/// Requires: multiplies(shape).
std::unique_ptr<Matmul::Implementation> make_matmul(device::Device& device,
                                                    const MatmulShape& shape);

}  // namespace trireme::ops::cpu::avx512
