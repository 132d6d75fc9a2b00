// SPDX-License-Identifier: Apache-2.0
// Sums of several sources in a given order: the arithmetic of every reduction on the CPU.
//
// 1. out[i] = ((s0[i] + s1[i]) + s2[i]) + …, in fp32, in exactly that order, whatever the
// instruction set; with bf16 the fp32 sum is rounded once, at the end.
// 2. `out` may be one of the sources; otherwise nothing overlaps.
#pragma once

#include <cstddef>
#include <span>

#include "base/dtype.hpp"

namespace trireme::comm {

/// Requires: sources not empty, dtype f32 or bf16.

void sum_in_order(std::byte* out,
                  std::span<const std::byte* const> sources,
                  std::int64_t elements,
                  DType dtype);

/// to[i] = to[i] + from[i], fp32.
void add_to(float* to, const float* from, std::int64_t elements);

}  // namespace trireme::comm
