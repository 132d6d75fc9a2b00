// SPDX-License-Identifier: Apache-2.0
#include "ops/cpu/vector_matmul.hpp"

#include "ops/cpu/blocked_matmul.hpp"
#include "ops/cpu/vector_block.hpp"

#if defined(__x86_64__)
#define TRIREME_AVX2 __attribute__((target("avx2,fma")))
#endif

namespace trireme::ops::cpu::vectors {
namespace {

/// All of a kernel but its products. Packing copies, so it is the same with any vectors.
template <Units kind, std::int64_t rows>
struct Packing {
  static constexpr Units units = kind;
  static constexpr std::int64_t panel_columns = vector_panel_columns, panel_rows = rows;
  static constexpr std::int64_t panels_at_once = 16;
  static constexpr auto pack_b = cpu::pack_b<kind>;
  static constexpr auto pack_b_transposed = cpu::pack_b_transposed<kind>;
  static constexpr auto pack_a_transposed = cpu::pack_a_transposed<kind, rows>;
  static constexpr auto copy_rows = cpu::copy_rows<kind>;
};

/// What the target has without asking: SSE2 on x86-64, NEON on aarch64.
#if defined(__x86_64__)
constexpr std::int64_t plain_rows = 2;
#else
constexpr std::int64_t plain_rows = 6;
#endif
template <Units kind>
struct Plain : Packing<kind, plain_rows> {
  template <bool packed>
  static void product_rows(const Terms& terms, const Target& target, std::int64_t rows) {
    cpu::product_rows<FourLanes, plain_rows, packed>(terms, target, rows);
  }
};

#if defined(__x86_64__)
constexpr std::int64_t avx2_rows = 6;
template <Units kind>
struct Avx2 : Packing<kind, avx2_rows> {
  template <bool packed>
  TRIREME_AVX2 static void product_rows(const Terms& terms,
                                        const Target& target,
                                        std::int64_t rows) {
    cpu::product_rows<EightLanes, avx2_rows, packed>(terms, target, rows);
  }
};
#endif

template <template <Units> class Kernel>
std::unique_ptr<Matmul::Implementation> make(const MatmulShape& shape) {
  if (shape.a == DType::f32)
    return std::make_unique<BlockedMatmul<Kernel<Units::single>>>(shape);
  return std::make_unique<BlockedMatmul<Kernel<Units::widened>>>(shape);
}

}  // namespace

Vectors best() {
#if defined(__x86_64__) && TRIREME_X86_LEVEL >= 3
  static const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return has_avx2 ? Vectors::avx2 : Vectors::plain;
#else
  return Vectors::plain;
#endif
}

std::unique_ptr<Matmul::Implementation> make_matmul(const MatmulShape& shape,
                                                    [[maybe_unused]] Vectors vectors) {
#if defined(__x86_64__)
  if (vectors == Vectors::avx2)
    return make<Avx2>(shape);
#endif
  return make<Plain>(shape);
}

}  // namespace trireme::ops::cpu::vectors
