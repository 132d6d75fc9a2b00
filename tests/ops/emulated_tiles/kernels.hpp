// SPDX-License-Identifier: Apache-2.0
// The AMX kernels of src/compute/ops/cpu/x86 on emulated tiles (tiles.hpp), in separate namespaces
// next to the real ones.
#pragma once

#include <memory>

#include "ops/attention_backend.hpp"
#include "ops/matmul_backend.hpp"

namespace trireme::test::tiles {

/// Whether this processor has AVX-512 with BF16, which the kernels need in addition to tiles.
bool can_run_kernels();

/// Requires: can_run_kernels(), operands in bf16.
std::unique_ptr<ops::Matmul::Implementation> make_matmul(const ops::MatmulShape& shape);

/// Requires: can_run_kernels(), bf16, a multiple of 64 positions, heads of a multiple of 32 channels;
/// calls without dropout.
std::unique_ptr<ops::Attention::Implementation> make_attention(const ops::AttentionShape& shape);

}  // namespace trireme::test::tiles
