// SPDX-License-Identifier: Apache-2.0
#include "ops/cpu/vector_matmul.hpp"

#include "ops/cpu/blocked_matmul.hpp"
#include "ops/cpu/products.hpp"
#include "ops/cpu/vector_pack.hpp"

namespace trireme::ops::cpu::vectors {
namespace {

/// All of a kernel but its products. Packing copies, so it is the same with any vectors that are
/// shorter than AVX-512's.
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

template <Units kind>
struct Plain : Packing<kind, plain::panel_rows> {
  template <bool packed>
  static constexpr auto product_rows = plain::product_rows<kind, packed>;
};

#if defined(__x86_64__)
template <Units kind>
struct Avx2 : Packing<kind, avx2::panel_rows> {
  template <bool packed>
  static constexpr auto product_rows = avx2::product_rows<kind, packed>;
};

template <Units kind>
struct Avx512 {
  static constexpr Units units = kind;
  static constexpr std::int64_t panel_columns = avx512::panel_columns;
  static constexpr std::int64_t panel_rows = avx512::panel_rows, panels_at_once = 2;
  static constexpr auto pack_b = avx512::pack_b<kind>;
  static constexpr auto pack_b_transposed = avx512::pack_b_transposed<kind>;
  static constexpr auto pack_a_transposed = avx512::pack_a_transposed<kind>;
  static constexpr auto copy_rows = avx512::copy_rows<kind>;
  template <bool packed>
  static constexpr auto product_rows = avx512::product_rows<kind, packed>;
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
    return std::make_unique<BlockedMatmul<Avx512<Units::pairs>>>(shape);
  if (vectors == Vectors::avx512)
    return make<Avx512>(shape);
  if (vectors == Vectors::avx2)
    return make<Avx2>(shape);
#endif
  return make<Plain>(shape);
}

}  // namespace trireme::ops::cpu::vectors
