// SPDX-License-Identifier: Apache-2.0
// The macros rename what these files define, because the real kernels are in the same program.
#if defined(__x86_64__)
#include <immintrin.h>

#include "ops/emulated_tiles/tiles.hpp"

#define amx emulated_amx
#define bf16_attention emulated_bf16_attention
#include "ops/cpu/x86/amx_matmul.cpp"
#include "ops/cpu/x86/bf16_attention.cpp"
#undef bf16_attention
#undef amx
#endif

#include "ops/emulated_tiles/kernels.hpp"

#if defined(__x86_64__)
namespace trireme::ops::cpu::emulated_bf16_attention {

std::unique_ptr<Attention::Implementation> make_on_tiles(const AttentionShape& shape) {
  return std::make_unique<PairedAttention<AmxProducts>>(shape, nullptr);
}

}  // namespace trireme::ops::cpu::emulated_bf16_attention
#endif

namespace trireme::test::tiles {

#if defined(__x86_64__)
bool can_run_kernels() {
  return ops::cpu::has_avx512() && __builtin_cpu_supports("avx512bf16");
}

std::unique_ptr<ops::Matmul::Implementation> make_matmul(const ops::MatmulShape& shape) {
  return ops::cpu::emulated_amx::make_matmul(shape);
}

std::unique_ptr<ops::Attention::Implementation> make_attention(const ops::AttentionShape& shape) {
  return ops::cpu::emulated_bf16_attention::make_on_tiles(shape);
}
#else
bool can_run_kernels() {
  return false;
}

std::unique_ptr<ops::Matmul::Implementation> make_matmul(const ops::MatmulShape& /*shape*/) {
  return nullptr;
}

std::unique_ptr<ops::Attention::Implementation> make_attention(
    const ops::AttentionShape& /*shape*/) {
  return nullptr;
}
#endif

}  // namespace trireme::test::tiles
