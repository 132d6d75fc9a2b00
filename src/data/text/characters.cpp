// SPDX-License-Identifier: Apache-2.0
#include "text/characters.hpp"

#include <algorithm>
#include <span>
#include <vector>

#include "text/unicode_ranges.hpp"

namespace trireme::text {
namespace {

std::vector<Kind> make_kinds() {
  std::vector<Kind> kinds(0x110000, Kind::other);
  const auto mark = [&kinds](std::span<const CodePointRange> ranges, Kind kind) {
    for (const auto [first, last] : ranges)
      std::fill(kinds.begin() + first, kinds.begin() + last + 1, kind);
  };
  mark(letter_ranges, Kind::letter);
  mark(number_ranges, Kind::number);
  mark(space_ranges, Kind::space);
  return kinds;
}

}  // namespace

const Kind* kinds_of_code_points() {
  static const std::vector<Kind> kinds = make_kinds();
  return kinds.data();
}

}  // namespace trireme::text
