// SPDX-License-Identifier: Apache-2.0
// The products of attention in bf16, by AMX tiles or by AVX-512's dot products of pairs; the
// code around them is the same (bf16_attention.cpp). Tiles are 64 queries by 64 keys. A is read
// in rows, B in panels of 32 columns (pack_kernels.hpp).
//
//   score     sums [64, 64] = rows [64, channels] of bf16 times 64 packed positions; blocks
//             outside of the part that is seen (bf16_tile.hpp) are not computed
//   gather    sums [64, channels] (+)= rows [64, 64] of bf16 times the packed channels of 64
//             positions
//
// A sum runs over channels or positions in order, whatever the neighbouring rows. Calls of one
// thread are within a Scope; what they read was stored before stored().
// 1. Both classes have the same members, and the kernel is a template over them: AMX is taken where
//    available() of AmxProducts holds.
// 2. Part::lower and Part::upper cut rows or positions that are zero by causality or by the window,
//    in blocks of 32 with AMX and by rows with AVX-512. What is cut is zero or is not read
//    (bf16_tile.hpp), so it decides no bits.
// 3. `channels` is a multiple of 32, the width of a panel; `time` of 64.
#pragma once

#include <algorithm>

#include "base/round_up.hpp"

#include "ops/cpu/products.hpp"
#include "ops/cpu/vector_matmul.hpp"
#include "ops/cpu/x86/amx_matmul.hpp"
#include "ops/cpu/x86/amx_tiles.hpp"
#include "ops/cpu/x86/bf16_tile.hpp"

namespace trireme::ops::cpu::bf16_attention {

using avx512::panel_columns;

/// By tiles of AMX: blocks of 32 x 32. A Scope configures the tiles, once per thread and call.
struct AmxProducts {
  using Scope = amx::Tiles;
  static bool available() { return amx::available(); }
  static void stored() { amx::stored(); }

  static TRIREME_AMX void score(
      float* sums, const Unit* rows, const Unit* positions, const AttentionHead& head, Part part) {
    for (std::int64_t r = 0; r < tile; r += amx::block_edge)
      for (std::int64_t c = 0; c < tile; c += amx::block_edge)
        if (part == Part::all || (part == Part::lower ? c <= r : r <= c))
          amx::multiply_tiles<false>(sums + r * tile + c, tile, rows + r * head.channels / 2,
                                     2 * head.channels, positions + c * head.channels / 2,
                                     head.channels / 2);
  }

  template <bool accumulate>
  static TRIREME_AMX void gather(
      float* sums, const Unit* rows, const Unit* channels, const AttentionHead& head, Part part) {
    for (std::int64_t c = 0; c < head.channels; c += amx::block_edge)
      for (std::int64_t r = 0; r < tile; r += amx::block_edge) {
        const std::int64_t begin = part == Part::upper ? r / 2 : 0;
        const std::int64_t end = part == Part::lower ? (r + amx::block_edge) / 2 : pairs;
        amx::multiply_tiles<accumulate>(
            sums + r * head.channels + c, head.channels, rows + r * pairs + begin, line_bytes,
            channels + c * head.time / 2 + begin * panel_columns, end - begin);
      }
  }
};

/// By AVX-512 BF16's dot products of pairs, through the matmul's own block (product_kernels.hpp).
class Avx512Products {
 public:
  struct Scope {
    Scope() {}  // nothing is to be set up
  };
  static bool available() { return vectors::has_fast_pairs(); }
  static void stored() {}

  static TRIREME_AVX512 void score(
      float* sums, const Unit* rows, const Unit* positions, const AttentionHead& head, Part part) {
    for (std::int64_t c = 0; c < tile; c += panel_columns) {
      const std::int64_t end = part == Part::upper ? c + panel_columns : tile;
      for (std::int64_t r = part == Part::lower ? c : 0; r < end; r += count(end - r)) {
        const Terms terms{.a = rows + r * head.channels / 2,
                          .row_stride = 2 * head.channels,
                          .b = positions + c * head.channels / 2,
                          .units = head.channels / 2};
        multiply(terms, sums + r * tile + c, tile, false, count(end - r));
      }
    }
  }

  template <bool accumulate>
  static TRIREME_AVX512 void gather(
      float* sums, const Unit* rows, const Unit* channels, const AttentionHead& head, Part part) {
    for (std::int64_t c = 0; c < head.channels; c += panel_columns)
      for (std::int64_t r = 0; r < tile; r += count(tile - r)) {
        const std::int64_t begin = part == Part::upper ? r / 2 : 0;
        const std::int64_t end = part == Part::lower ? divided_up(r + count(tile - r), 2) : pairs;
        const Terms terms{.a = rows + r * pairs + begin,
                          .row_stride = line_bytes,
                          .b = channels + c * head.time / 2 + begin * panel_columns,
                          .units = end - begin};
        multiply(terms, sums + r * head.channels + c, head.channels, accumulate, count(tile - r));
      }
  }

 private:
  /// Rows that are multiplied at once where `left` are left, one of two numbers: 64 are 4 x 12 and
  /// 2 x 8, and 32 are 2 x 12 and 8.
  static constexpr std::int64_t last_rows = 8;
  static std::int64_t count(std::int64_t left) {
    return left >= 2 * avx512::panel_rows || left == avx512::panel_rows ? avx512::panel_rows
                                                                        : last_rows;
  }
  static TRIREME_AVX512_INLINE void multiply(
      const Terms& terms, float* sums, std::int64_t stride, bool accumulate, std::int64_t rows) {
    const Target target{.c = reinterpret_cast<std::byte*>(sums),
                        .addend = accumulate ? sums : nullptr,
                        .c_stride = stride,
                        .addend_stride = stride,
                        .columns = panel_columns};
    if (rows == avx512::panel_rows)
      avx512::inlined_block<Units::pairs, false, avx512::panel_rows>(terms, target);
    else
      avx512::inlined_block<Units::pairs, false, last_rows>(terms, target);
  }
};

}  // namespace trireme::ops::cpu::bf16_attention
