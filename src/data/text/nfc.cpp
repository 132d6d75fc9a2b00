// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "text/characters.hpp"
#include "text/unicode_ranges.hpp"

namespace trireme::text {
namespace {

// Syllables of Hangul are computed (Unicode, section 3.12).
constexpr std::uint32_t hangul = 0xAC00, lead = 0x1100, vowel = 0x1161, tail = 0x11A7;
constexpr std::uint32_t vowels = 21, tails = 28, syllables = 11172, leads = 19;

constexpr std::uint32_t first_special = 0x300;  ///< below it everything is in form C

struct Tables {
  struct Parts {
    std::uint32_t first, second;
  };
  std::vector<std::uint8_t> classes = std::vector<std::uint8_t>(0x110000);
  std::vector<std::uint8_t> unsure = std::vector<std::uint8_t>(0x110000);  ///< not surely in form C
  std::vector<std::uint8_t> joins = std::vector<std::uint8_t>(0x110000);   ///< with what it follows
  std::unordered_map<std::uint32_t, Parts> parts;
  std::unordered_map<std::uint64_t, std::uint32_t> composed;

  static std::uint64_t key(std::uint32_t first, std::uint32_t second) {
    return std::uint64_t{first} << 32U | second;
  }

  Tables() {
    std::string_view rest = combining_runs;
    for (std::size_t at = 0; !rest.empty();) {
      const std::uint32_t run = next_number(rest);
      std::fill_n(classes.begin() + static_cast<std::ptrdiff_t>(at), run >> 8U, run & 0xFFU);
      at += run >> 8U;
    }
    rest = decompositions;
    for (std::uint32_t code = 0, first = 0; !rest.empty();) {
      code += next_number(rest);
      const std::uint32_t step = next_number(rest), second = next_number(rest);
      first += (step & 1U) != 0 ? ~(step >> 1U) : step >> 1U;
      parts.emplace(code, Parts{first, second >> 1U});
      if ((second & 1U) != 0)
        composed.emplace(key(first, second >> 1U), code);
      else
        unsure[code] = 1;
      if ((second & 1U) != 0)
        joins[second >> 1U] = 1;
    }
    std::fill_n(joins.begin() + vowel, vowels, 1);
    std::fill_n(joins.begin() + tail + 1, tails - 1, 1);
    for (std::size_t code = 0; code < classes.size(); ++code)
      if (classes[code] != 0)
        joins[code] = 1;
    for (const auto& [code, its] : parts)  // what it begins with when it is taken apart
      for (std::uint32_t first = its.first;; first = parts.at(first).first) {
        joins[code] |= joins[first];
        if (!parts.contains(first))
          break;
      }
    for (std::size_t code = 0; code < classes.size(); ++code) unsure[code] |= joins[code];
  }
};
const Tables& tables() {
  static const Tables only;
  return only;
}

void decompose(std::uint32_t code, std::vector<std::uint32_t>& out) {
  if (code - hangul < syllables) {
    const std::uint32_t index = code - hangul;
    out.push_back(lead + index / (vowels * tails));
    out.push_back(vowel + index % (vowels * tails) / tails);
    if (index % tails != 0)
      out.push_back(tail + index % tails);
    return;
  }
  const auto found = tables().parts.find(code);
  if (found == tables().parts.end()) {
    out.push_back(code);
    return;
  }
  decompose(found->second.first, out);
  if (found->second.second != 0)
    out.push_back(found->second.second);
}

/// What two characters compose to; 0: nothing.
std::uint32_t composition(std::uint32_t first, std::uint32_t second) {
  if (first - lead < leads && second - vowel < vowels)
    return hangul + ((first - lead) * vowels + (second - vowel)) * tails;
  if (first - hangul < syllables && (first - hangul) % tails == 0 && second - tail - 1 < tails - 1)
    return first + (second - tail);
  const auto found = tables().composed.find(Tables::key(first, second));
  return found == tables().composed.end() ? 0 : found->second;
}

/// Canonical order and composition, in place.
void compose(std::vector<std::uint32_t>& codes) {
  const auto& classes = tables().classes;
  for (std::size_t at = 0; at < codes.size();) {
    const std::size_t begin = at;
    while (at < codes.size() && classes[codes[at]] != 0) ++at;
    std::stable_sort(codes.begin() + static_cast<std::ptrdiff_t>(begin),
                     codes.begin() + static_cast<std::ptrdiff_t>(at),
                     [&](auto a, auto b) { return classes[a] < classes[b]; });
    at += at == begin ? 1 : 0;
  }
  std::size_t kept = 0, starter = codes.size();
  int last = -1;  // the class of what was kept after the starter; -1: nothing
  for (const std::uint32_t code : std::vector(codes)) {
    const int its = classes[code];
    if (starter < kept && (last < its || last == -1))
      if (const std::uint32_t both = composition(codes[starter], code); both != 0) {
        codes[starter] = both;
        continue;
      }
    if (its == 0)
      starter = kept;
    last = its == 0 ? -1 : its;
    codes[kept++] = code;
  }
  codes.resize(kept);
}

/// Calls take(code, begin, bytes) for every character; what is not UTF-8 has the code `no_code`.
template <class Take>
bool each_character(std::string_view text, Take&& take) {
  const auto* const begin = reinterpret_cast<const unsigned char*>(text.data());
  const auto* const end = begin + text.size();
  for (const auto* at = begin; at < end;) {
    const std::uint8_t bytes = character_at(at, end, kinds_of_code_points()).bytes;
    if (!take(bytes == 1 && *at >= 0x80 ? no_code : code_point(at, bytes),
              static_cast<std::size_t>(at - begin), bytes))
      return false;
    at += bytes;
  }
  return true;
}

}  // namespace

bool begins_nfc(std::uint32_t code) {
  return code == no_code || tables().joins[code] == 0;
}

bool is_surely_nfc(std::string_view text) {
  // The lead byte of U+0300 is 0xCC.
  const auto special =
      std::ranges::find_if(text, [](char c) { return static_cast<unsigned char>(c) >= 0xCC; });
  const auto& unsure = tables().unsure;
  return each_character(text.substr(static_cast<std::size_t>(special - text.begin())),
                        [&](std::uint32_t code, std::size_t, std::size_t) {
                          return code == no_code || code < first_special || unsure[code] == 0;
                        });
}

std::string nfc(std::string_view text) {
  std::string out;
  std::vector<std::uint32_t> codes;
  const auto flush = [&] {
    compose(codes);
    for (const std::uint32_t code : codes) put_utf8(code, out);
    codes.clear();
  };
  each_character(text, [&](std::uint32_t code, std::size_t at, std::size_t) {
    if (begins_nfc(code))
      flush();
    if (code == no_code)
      out.push_back(text[at]);
    else
      decompose(code, codes);
    return true;
  });
  flush();
  return out;
}

}  // namespace trireme::text
