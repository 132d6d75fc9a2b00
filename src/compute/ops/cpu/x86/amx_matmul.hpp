// SPDX-License-Identifier: Apache-2.0
// Matrix products of bf16 by our own AMX kernels. B is packed into panels of 32 columns; a block of
// C is 32 by 32 elements in four tile registers.
// 1. The bits of an element of C depend on its row of A, its column of B, and K: not on the other
//    rows and columns, nor on threads.
// 2. Products are added in fp32, 32 of K at a time as the instruction adds them; denormals count as
//    zero there (the instruction's own rule).
#pragma once

#include <memory>

#include "ops/matmul_backend.hpp"

namespace trireme::ops::cpu::amx {

#if defined(__x86_64__)
/// Whether this processor has AMX for bf16 and the kernel allows it; requests it once.
bool available();
#else
inline bool available() {
  return false;
}
#endif

/// Whether this processor supports these dtypes.
inline bool multiplies(const MatmulShape& shape) {
  return shape.a == DType::bf16 && shape.b == DType::bf16 && available();
}

/// Requires: multiplies(shape). Only on x86-64.
std::unique_ptr<Matmul::Implementation> make_matmul(const MatmulShape& shape);

}  // namespace trireme::ops::cpu::amx
