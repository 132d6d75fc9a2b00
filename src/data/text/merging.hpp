// SPDX-License-Identifier: Apache-2.0
// Merges the tokens of one piece: which neighbouring tokens may be merged, and at which rank.
//
// merge() gives the same tokens for short and long pieces, by different algorithms. Up to
// short_piece tokens it searches all neighbours for the lowest rank, without heap or allocation.
// For longer pieces a heap holds the candidates and a list the neighbours: n log n for n bytes.
//
// Threads: const members are safe from several threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "text/tokenizer.hpp"

namespace trireme::text {

inline constexpr std::size_t short_piece = 96;

/// Both tokens in one number, left in the upper half.
inline std::uint64_t pair_of(Token left, Token right) {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32U | static_cast<std::uint32_t>(right);
}

/// An open hash table of pairs, at most half full, so that a search ends at an empty slot.
class MergeTable {
 public:
  struct Merge {
    std::uint64_t pair = none;  ///< pair_of() both
    std::uint32_t rank = 0;     ///< the lower is merged first
    Token token = 0;            ///< what the two become
  };
  static constexpr std::uint64_t none = std::numeric_limits<std::uint64_t>::max();
  static constexpr std::uint32_t no_rank = std::numeric_limits<std::uint32_t>::max();

  /// Reserves room for this many merges.
  explicit MergeTable(std::size_t merges);

  /// False when the pair is there already.
  bool add(Token left, Token right, std::uint32_t rank, Token token);

  /// Null when the two are not merged.
  [[nodiscard]] const Merge* find(Token left, Token right) const {
    const std::uint64_t pair = pair_of(left, right);
    for (std::size_t at = first_slot(pair);; at = (at + 1) & mask_) {
      if (merges_[at].pair == pair)
        return &merges_[at];
      if (merges_[at].pair == none)
        return nullptr;
    }
  }

  /// Merges the tokens of a piece in place. Returns how many are left, at the front.
  std::size_t merge(std::span<Token> tokens) const {
    return tokens.size() <= short_piece ? merge_short(tokens) : merge_long(tokens);
  }

 private:
  [[nodiscard]] std::size_t first_slot(std::uint64_t pair) const {
    return static_cast<std::size_t>((pair * 0x9E3779B97F4A7C15U) >> shift_);
  }
  std::size_t merge_short(std::span<Token> tokens) const;
  std::size_t merge_long(std::span<Token> tokens) const;

  unsigned shift_ = 0;
  std::size_t mask_ = 0;
  std::vector<Merge> merges_;
};

}  // namespace trireme::text
