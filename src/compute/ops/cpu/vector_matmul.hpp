// SPDX-License-Identifier: Apache-2.0
// Matrix products by our own kernels with the vectors of any processor, in fp32 and bf16; those by
// AMX are x86/amx_matmul.hpp. B is packed into panels that stay in the second-level cache while the
// rows of A pass by. bf16 is multiplied in pairs where that is fast (has_fast_pairs()), else widened
// to fp32 as the operands are packed.
// 1. The bits of an element of C depend on its row of A, its column of B, and K: not on the other
//    rows and columns, nor on threads. In fp32, and in bf16 that is widened, they are the same with
//    all vectors that fuse multiplication and addition (not SSE2).
// 2. A product of two bf16 pairs is added in fp32; denormals count as zero there (the instruction's
//    own rule). Widened products are exact in fp32 and are added one after the other.
#pragma once

#include <memory>

#include "ops/matmul_backend.hpp"

namespace trireme::ops::cpu::vectors {

/// Which vectors this processor has; lower ones can be asked for. `plain` are SSE2 or NEON.
enum class Vectors : std::uint8_t { plain, avx2, avx512 };
Vectors best();

/// Whether AVX-512 BF16's dot product of pairs is faster than fp32: Zen 4 and 5 start one per
/// cycle, twice fp32's FLOP/s; Intel's processors start one in two cycles, half of fp32's FLOP/s.
bool has_fast_pairs();

/// Requires: operands of one dtype; at most best(); for `pairs`, how bf16 is multiplied, a processor
/// with AVX-512 BF16.
std::unique_ptr<Matmul::Implementation> make_matmul(const MatmulShape& shape,
                                                    Vectors vectors = best(),
                                                    bool pairs = has_fast_pairs());

}  // namespace trireme::ops::cpu::vectors
