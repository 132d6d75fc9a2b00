// SPDX-License-Identifier: Apache-2.0
#include "text/characters.hpp"

#include <vector>

#include "text/unicode_ranges.hpp"

namespace trireme::text {
namespace {

constexpr std::uint32_t alternating = 9;

std::vector<Kind> make_details() {
  std::vector<Kind> kinds;
  kinds.reserve(0x110000);
  for (std::string_view rest = kind_runs; !rest.empty();) {
    const std::uint32_t run = next_number(rest), kind = run & 15U;
    for (std::uint32_t i = 0; kind == alternating && i < run >> 4U; ++i)
      kinds.push_back(i % 2 == 0 ? Kind::upper : Kind::lower);
    if (kind != alternating)
      kinds.resize(kinds.size() + (run >> 4U), static_cast<Kind>(kind));
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

void put_utf8(std::uint32_t code, std::string& out) {
  const unsigned more = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;  // bytes
  constexpr std::uint32_t leads[] = {0, 0xC0, 0xE0, 0xF0};
  out.push_back(static_cast<char>(leads[more] | code >> 6 * more));
  for (unsigned left = more; left-- > 0;)
    out.push_back(static_cast<char>(0x80U | (code >> 6 * left & 0x3FU)));
}

const Kind* kinds_of_code_points() {
  static const std::vector<Kind> kinds = make_kinds();
  return kinds.data();
}

const Kind* details_of_code_points() {
  static const std::vector<Kind> kinds = make_details();
  return kinds.data();
}

}  // namespace trireme::text
