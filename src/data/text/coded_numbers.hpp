// SPDX-License-Identifier: Apache-2.0
// The numbers that the tables of unicode_ranges.hpp are coded as: five bits a character, the lowest
// first; each but the last has 32 added.
#pragma once

#include <cstdint>
#include <string_view>

namespace trireme::text {

inline std::uint32_t next_number(std::string_view& text) {
  std::uint32_t value = 0;
  for (unsigned shift = 0;; shift += 5) {
    const auto digit = static_cast<std::uint32_t>(text.front() - '0');
    text.remove_prefix(1);
    value |= (digit & 31U) << shift;
    if (digit < 32)
      return value;
  }
}

}  // namespace trireme::text
