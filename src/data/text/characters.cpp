// SPDX-License-Identifier: Apache-2.0
#include "text/characters.hpp"

#include <vector>

#include "text/unicode_ranges.hpp"

namespace trireme::text {
namespace {

std::vector<Kind> make_details() {
  std::vector<Kind> kinds;
  kinds.reserve(0x110000);
  for (std::string_view rest = kind_runs; !rest.empty();) {
    const std::uint32_t run = next_number(rest);
    kinds.resize(kinds.size() + (run >> 4U), static_cast<Kind>(run & 15U));
  }
  return kinds;
}

std::vector<Kind> make_kinds() {
  std::vector<Kind> kinds = make_details();
  for (Kind& kind : kinds)
    if (kind >= Kind::upper)
      kind = kind <= Kind::lower ? Kind::letter : Kind::other;
  return kinds;
}

}  // namespace

const Kind* kinds_of_code_points() {
  static const std::vector<Kind> kinds = make_kinds();
  return kinds.data();
}

const Kind* details_of_code_points() {
  static const std::vector<Kind> kinds = make_details();
  return kinds.data();
}

}  // namespace trireme::text
