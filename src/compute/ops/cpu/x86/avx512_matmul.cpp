// SPDX-License-Identifier: Apache-2.0
#include "ops/cpu/x86/avx512_matmul.hpp"

#include "base/error.hpp"

#if defined(__x86_64__)
#include "ops/cpu/blocked_matmul.hpp"
#include "ops/cpu/loops.hpp"
#include "ops/cpu/x86/avx512_block.hpp"

namespace trireme::ops::cpu::avx512 {
namespace {

template <Units kind>
struct Kernel {
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

template <Units kind>
using MatmulAvx512 = BlockedMatmul<Kernel<kind>>;

}  // namespace

bool multiplies(const MatmulShape& shape) {
  return has_avx512() && shape.a == shape.b && (shape.c == DType::f32 || shape.c == shape.a) &&
         (shape.a == DType::f32 || shape.a == DType::bf16);
}

bool has_fast_pairs() {
  static const bool has =
      has_avx512() && __builtin_cpu_supports("avx512bf16") && !__builtin_cpu_is("intel");
  return has;
}

std::unique_ptr<Matmul::Implementation> make_matmul(const MatmulShape& shape, bool pairs) {
  if (shape.a == DType::f32)
    return std::make_unique<MatmulAvx512<Units::single>>(shape);
  if (pairs)
    return std::make_unique<MatmulAvx512<Units::pairs>>(shape);
  return std::make_unique<MatmulAvx512<Units::widened>>(shape);
}

}  // namespace trireme::ops::cpu::avx512
#else
namespace trireme::ops::cpu::avx512 {

bool multiplies(const MatmulShape& /*shape*/) {
  return false;
}

bool has_fast_pairs() {
  return false;
}

std::unique_ptr<Matmul::Implementation> make_matmul(const MatmulShape& shape, bool /*pairs*/) {
  TRIREME_EXPECT(false, "AVX-512 products of {} on another processor", name(shape.a));
  return nullptr;
}

}  // namespace trireme::ops::cpu::avx512
#endif
