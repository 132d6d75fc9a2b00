// SPDX-License-Identifier: Apache-2.0
// Matrix products by our own kernels on any processor, in fp32 and in bf16 that is widened as the
// operands are packed: for x86 without AVX-512 and for aarch64.
//
// 1. The bits of an element of C depend on its row of A, its column of B, and K: not on the other
//    rows and columns, nor on threads. In fp32 they are those of AVX-512 as well, where the
//    processor fuses multiplication and addition (AVX2, NEON; not SSE2).
#pragma once

#include <memory>

#include "ops/matmul_backend.hpp"

namespace trireme::ops::cpu::vectors {

/// Which vectors this processor has; a lower one can be asked for.
enum class Vectors : std::uint8_t { plain, avx2 };
Vectors best();

/// Requires: operands of one dtype; at most best().
std::unique_ptr<Matmul::Implementation> make_matmul(const MatmulShape& shape,
                                                    Vectors vectors = best());

}  // namespace trireme::ops::cpu::vectors
