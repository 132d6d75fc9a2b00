// SPDX-License-Identifier: Apache-2.0
// A set of texts that are looked for in others: how special and added tokens are spelled.
//
// Immutable; all functions are const and safe from several threads at once. find() passes over
// texts without the first two bytes of any spelling at the speed of memchr or of one table look-up
// per byte.
#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::text {

class Spellings {
 public:
  Spellings() = default;
  /// Requires: no text is empty.
  explicit Spellings(std::vector<std::string> texts);

  [[nodiscard]] bool empty() const { return texts_.empty(); }
  [[nodiscard]] const std::vector<std::string>& texts() const { return texts_; }
  [[nodiscard]] std::size_t longest() const { return longest_; }

  struct Found {
    std::size_t at = std::string_view::npos;  ///< npos: none
    std::size_t number = 0;                   ///< in texts()
  };
  /// The first spelling at or after `from`; of several that begin there, the longest.
  [[nodiscard]] Found find(std::string_view text, std::size_t from = 0) const;
  /// Whether one begins before `place` and ends at or after it.
  [[nodiscard]] bool covers(std::string_view text, std::size_t place) const;

 private:
  /// The longest that begins the text; texts_.size(): none.
  [[nodiscard]] std::size_t longest_at(std::string_view text) const;

  std::vector<std::string> texts_;
  std::array<std::vector<std::size_t>, 256> by_first_;  ///< the longest first
  std::bitset<65536> pairs_;                            ///< the first two bytes
  int only_first_ = -1;                                 ///< the first byte of all; -1: several
  std::size_t longest_ = 0;
};

}  // namespace trireme::text
