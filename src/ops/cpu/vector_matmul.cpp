// SPDX-License-Identifier: Apache-2.0
#include "ops/cpu/vector_matmul.hpp"

#include "ops/cpu/blocked_matmul.hpp"
#include "ops/cpu/vector_block.hpp"

#if defined(__x86_64__)
#define TRIREME_AVX2 __attribute__((target("avx2,fma")))
#endif

namespace trireme::ops::cpu::vectors {
namespace {

/// What the target has without asking: SSE2 on x86-64, NEON on aarch64.
template <Units kind>
struct Plain {
  using Width = FourLanes;
#if defined(__x86_64__)
  static constexpr std::int64_t panel_rows = 2;
#else
  static constexpr std::int64_t panel_rows = 6;
#endif
  static constexpr Units units = kind;
  static constexpr std::int64_t panel_columns = vector_panel_columns, panels_at_once = 16;

  static void pack_b(
      Unit* to, const Stored& b, std::int64_t column, std::int64_t begin, std::int64_t end) {
    cpu::pack_b<kind>(to, b, column, begin, end);
  }
  static void pack_b_transposed(
      Unit* to, const Stored& b, std::int64_t column, std::int64_t begin, std::int64_t end) {
    cpu::pack_b_transposed<Width, kind>(to, b, column, begin, end);
  }
  static void pack_a_transposed(Unit* to,
                                std::int64_t stride,
                                const Stored& a,
                                std::int64_t row,
                                std::int64_t rows,
                                std::int64_t begin,
                                std::int64_t end) {
    cpu::pack_a_transposed<Width, kind, panel_rows>(to, stride, a, row, rows, begin, end);
  }
  static void copy_rows(Unit* to,
                        std::int64_t stride,
                        const Stored& a,
                        std::int64_t row,
                        std::int64_t rows,
                        std::int64_t begin,
                        std::int64_t end) {
    cpu::copy_rows<kind>(to, stride, a, row, rows, begin, end);
  }
  template <bool packed>
  static void product_rows(const Terms& terms, const Target& target, std::int64_t rows) {
    cpu::product_rows<Width, panel_rows, packed>(terms, target, rows);
  }
};

#if defined(__x86_64__)
template <Units kind>
struct Avx2 {
  using Width = EightLanes;
  static constexpr Units units = kind;
  static constexpr std::int64_t panel_columns = vector_panel_columns, panel_rows = 6;
  static constexpr std::int64_t panels_at_once = 16;

  TRIREME_AVX2 static void pack_b(
      Unit* to, const Stored& b, std::int64_t column, std::int64_t begin, std::int64_t end) {
    cpu::pack_b<kind>(to, b, column, begin, end);
  }
  TRIREME_AVX2 static void pack_b_transposed(
      Unit* to, const Stored& b, std::int64_t column, std::int64_t begin, std::int64_t end) {
    cpu::pack_b_transposed<Width, kind>(to, b, column, begin, end);
  }
  TRIREME_AVX2 static void pack_a_transposed(Unit* to,
                                             std::int64_t stride,
                                             const Stored& a,
                                             std::int64_t row,
                                             std::int64_t rows,
                                             std::int64_t begin,
                                             std::int64_t end) {
    cpu::pack_a_transposed<Width, kind, panel_rows>(to, stride, a, row, rows, begin, end);
  }
  TRIREME_AVX2 static void copy_rows(Unit* to,
                                     std::int64_t stride,
                                     const Stored& a,
                                     std::int64_t row,
                                     std::int64_t rows,
                                     std::int64_t begin,
                                     std::int64_t end) {
    cpu::copy_rows<kind>(to, stride, a, row, rows, begin, end);
  }
  template <bool packed>
  TRIREME_AVX2 static void product_rows(const Terms& terms,
                                        const Target& target,
                                        std::int64_t rows) {
    cpu::product_rows<Width, panel_rows, packed>(terms, target, rows);
  }
};
#endif

template <template <Units> class Kernel>
std::unique_ptr<Matmul::Implementation> make(device::Device& device, const MatmulShape& shape) {
  if (shape.a == DType::f32)
    return std::make_unique<BlockedMatmul<Kernel<Units::single>>>(device, shape);
  return std::make_unique<BlockedMatmul<Kernel<Units::widened>>>(device, shape);
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

std::unique_ptr<Matmul::Implementation> make_matmul(device::Device& device,
                                                    const MatmulShape& shape,
                                                    [[maybe_unused]] Vectors vectors) {
#if defined(__x86_64__)
  if (vectors == Vectors::avx2)
    return make<Avx2>(device, shape);
#endif
  return make<Plain>(device, shape);
}

}  // namespace trireme::ops::cpu::vectors
