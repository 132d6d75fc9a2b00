// SPDX-License-Identifier: Apache-2.0
#include "ops/cpu/vector_matmul.hpp"

#include "ops/cpu/blocked_matmul.hpp"
#include "ops/cpu/products.hpp"

namespace trireme::ops::cpu::vectors {
namespace {

template <template <Units> class Kernel>
std::unique_ptr<Matmul::Implementation> make(const MatmulShape& shape) {
  if (shape.a == DType::f32)
    return std::make_unique<BlockedMatmul<Kernel<Units::single>>>(shape);
  return std::make_unique<BlockedMatmul<Kernel<Units::widened>>>(shape);
}

}  // namespace

Vectors best() {
  return has_avx512() ? Vectors::avx512 : has_avx2() ? Vectors::avx2 : Vectors::plain;
}

bool has_fast_pairs() {
#if defined(__x86_64__)
  static const bool has =
      has_avx512() && __builtin_cpu_supports("avx512bf16") && !__builtin_cpu_is("intel");
  return has;
#else
  return false;
#endif
}

std::unique_ptr<Matmul::Implementation> make_matmul(const MatmulShape& shape,
                                                    [[maybe_unused]] Vectors vectors,
                                                    [[maybe_unused]] bool pairs) {
#if defined(__x86_64__)
  if (vectors == Vectors::avx512 && pairs && shape.a == DType::bf16)
    return std::make_unique<BlockedMatmul<avx512::Kernel<Units::pairs>>>(shape);
  if (vectors == Vectors::avx512)
    return make<avx512::Kernel>(shape);
  if (vectors == Vectors::avx2)
    return make<avx2::Kernel>(shape);
#endif
  return make<plain::Kernel>(shape);
}

}  // namespace trireme::ops::cpu::vectors
