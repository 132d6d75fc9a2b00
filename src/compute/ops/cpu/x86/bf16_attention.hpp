// SPDX-License-Identifier: Apache-2.0
// Attention in bf16 by AMX tiles or AVX-512's products of pairs, where the sizes are those of
// tiles: whole tiles of 64 positions, heads of a multiple of 32 channels. Probabilities and their
// gradients are rounded to bf16 between products; sums, the softmax and what is carried from tile
// to tile are fp32, and so are the sums of dK and dV over query heads that share keys.
#pragma once

#include <memory>

#include "ops/attention_backend.hpp"

namespace trireme::ops::cpu::bf16_attention {

/// Whether this processor, these sizes and this dtype are supported.
#if defined(__x86_64__)
bool attends(const AttentionShape& shape);
#else
inline bool attends(const AttentionShape& /*shape*/) {
  return false;
}
#endif

/// `general` computes calls with dropout, which these kernels do not support; null if there are
/// none. Requires: attends(shape). Only on x86-64.
std::unique_ptr<Attention::Implementation> make_attention(
    const AttentionShape& shape, std::unique_ptr<Attention::Implementation> general);

}  // namespace trireme::ops::cpu::bf16_attention
