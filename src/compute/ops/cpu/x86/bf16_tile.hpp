// SPDX-License-Identifier: Apache-2.0
// A tile of attention in bf16, 64 queries by 64 keys: which of its keys each query sees, and which
// blocks of it the products (bf16_attention_products.hpp) can leave out.
// 1. A query sees a run of keys. It ends with the query on the diagonal, else with the tile.
// 2. What is hidden is exactly zero in P and dS, so a tile that is left out and a tile whose keys
//    are all hidden give the same bits.
#pragma once

#include <array>
#include <cstdint>

#include "ops/cpu/attention_head.hpp"

namespace trireme::ops::cpu::bf16_attention {

/// Units (of two bf16) of a row of a tile.
inline constexpr std::int64_t pairs = tile / 2;
/// Of a tile of bf16 with rows of 64.
inline constexpr std::int64_t line_bytes = tile * 2;

/// Of a tile whose rows are queries, what may be seen: on the diagonal what causality leaves, at
/// the border of a window what is above the diagonal.
enum class Part : std::uint8_t { all, lower, upper };

/// Of the same tile with keys as rows.
constexpr Part transposed(Part part) {
  return part == Part::all ? part : part == Part::lower ? Part::upper : Part::lower;
}

struct Seen {
  bool all;       ///< every query sees every key; then `first` is not set
  bool diagonal;  ///< and no query sees keys after its own position
  Part part;
  /// The first key that each query sees, from the tile's first key on; 64: none.
  alignas(64) std::array<std::int32_t, static_cast<std::size_t>(tile)> first;

  TRIREME_INLINE Seen(const AttentionHead& head, std::int64_t query, std::int64_t key)
      : all(query != key && head.first_key(query + tile - 1) <= key),
        diagonal(query == key),
        part(diagonal ? Part::lower : Part::all) {
    if (all)
      return;
    bool above = !diagonal;
    for (std::int64_t r = 0; r < tile; ++r) {
      const std::int64_t at = std::clamp<std::int64_t>(head.first_key(query + r) - key, 0, tile);
      first[static_cast<std::size_t>(r)] = static_cast<std::int32_t>(at);
      above = above && at >= r;
    }
    if (above)
      part = Part::upper;
  }

  /// Bit c: the query of row r sees key c.
  [[nodiscard]] TRIREME_INLINE std::uint64_t keys_of(std::int64_t r) const {
    const std::int32_t from = first[static_cast<std::size_t>(r)];
    const std::uint64_t later = from < tile ? ~std::uint64_t{0} << from : 0;
    return diagonal ? later & ((std::uint64_t{2} << r) - 1) : later;
  }
};

}  // namespace trireme::ops::cpu::bf16_attention
