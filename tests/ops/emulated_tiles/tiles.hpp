// SPDX-License-Identifier: Apache-2.0
// AMX tile registers in plain C++, so that kernels written with Intel's intrinsics run on any
// processor with AVX-512 BF16. Include after <immintrin.h> and before the kernels: the macros below
// replace the intrinsics.
//
// Source: Intel's Software Developer's Manual, TILELOADD, TILESTORED, TDPBF16PS. Instructions that the
// processor refuses (an unconfigured tile, sizes that do not fit) end the process.
#pragma once

#include <cstddef>
#include <cstdint>

namespace trireme::test::tiles {

void load_config(const void* config);
void release();
void zero(int tile);
void load(int tile, const void* from, std::int64_t stride);
void store(int tile, void* to, std::int64_t stride);
/// Adds to `sums`, [rows, columns] of fp32, the product of `a`, [rows, pairs], and `b`,
/// [pairs, columns], both in pairs of bf16. Of each pair, the first elements are summed over all
/// pairs apart from the second ones. Subnormal inputs and results count as zero.
void multiply(int sums, int a, int b);

}  // namespace trireme::test::tiles

#undef _tile_loadconfig
#undef _tile_release
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbf16ps
#define _tile_loadconfig trireme::test::tiles::load_config
#define _tile_release trireme::test::tiles::release
#define _tile_zero trireme::test::tiles::zero
#define _tile_loadd trireme::test::tiles::load
#define _tile_stored trireme::test::tiles::store
#define _tile_dpbf16ps trireme::test::tiles::multiply
