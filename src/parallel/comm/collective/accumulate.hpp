// SPDX-License-Identifier: Apache-2.0
// Sums of several sources in a given order, and copies: the memory operations of all collectives on
// the CPU.
//
// 1. Additions are in fp32, in exactly the order that the function states, with every instruction
//    set; with bf16 the fp32 sum is rounded once, at the end. Sums of integers are exact in any
//    order.
// 2. `out` may be one of the sources; otherwise no memory overlaps.
#pragma once

#include <cstddef>
#include <span>

#include "base/dtype.hpp"

#include "comm/collective/routes.hpp"
#include "comm/config.hpp"

namespace trireme::comm {

/// Requires: sources not empty, dtype f32, bf16 or i64.
using Summation = void (*)(std::byte* out,
                           std::span<const std::byte* const> sources,
                           std::int64_t elements,
                           DType dtype);

/// out[i] = ((s0[i] + s1[i]) + s2[i]) + …
void sum_in_order(std::byte* out,
                  std::span<const std::byte* const> sources,
                  std::int64_t elements,
                  DType dtype);

/// out[i] = ((s0[i] + s1[i]) + (s2[i] + s3[i])) + …: the sources before the largest power of two
/// that is smaller than their number, plus those after it, each summed the same way.
void sum_in_pairs(std::byte* out,
                  std::span<const std::byte* const> sources,
                  std::int64_t elements,
                  DType dtype);

constexpr Summation summation_of(Reduction reduction) {
  return reduction == Reduction::tree ? sum_in_pairs : sum_in_order;
}

/// Copies bytes that are not read soon. Large copies use stores that bypass the caches. Source:
/// reading 32 MiB that a peer has just written takes 2.7 ms this way and 4.1 ms with memcpy (two
/// Zen 4 cores).
void copy_past_caches(std::byte* to, const std::byte* from, std::size_t bytes);

/// to[i] = to[i] + from[i], fp32.
void add_to(float* to, const float* from, std::int64_t elements);

/// Performs `steps` on a stack of partial sums in fp32. One remains, which `out` gets in `out_dtype`.
/// `sources`: `elements` values for each step, in fp32 if the step says so, else of `dtype`; null
/// for a merge. All dtypes are f32 or bf16.
void sum_in_steps(std::byte* out,
                  DType out_dtype,
                  std::span<const SumStep> steps,
                  std::span<const std::byte* const> sources,
                  std::int64_t elements,
                  DType dtype);

}  // namespace trireme::comm
