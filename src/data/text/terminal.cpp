// SPDX-License-Identifier: Apache-2.0
#include "text/terminal.hpp"

#include <cmath>
#include <cstddef>
#include <utility>

#include <fmt/format.h>

#include "base/text.hpp"

namespace trireme::text {
namespace {

/// How many bytes a character has that begins with `lead`, when it is well-formed; 1 for what
/// begins none.
std::size_t promised_bytes(unsigned char lead) {
  return lead >= 0xF0 && lead < 0xF5   ? 4
         : lead >= 0xE0 && lead < 0xF0 ? 3
         : lead >= 0xC2 && lead < 0xE0 ? 2
                                       : 1;
}

/// Calls `take(character, well_formed)` for each character, and each byte that belongs to none.
template <class Take>
void each_character(std::string_view text, const Take& take) {
  for (std::size_t i = 0, bytes = 0; i < text.size(); i += bytes) {
    bytes = character_bytes(text.substr(i));
    take(text.substr(i, bytes), bytes > 1 || static_cast<unsigned char>(text[i]) < 0x80);
  }
}

}  // namespace

std::string json_string(std::string_view text) {
  std::string quoted = "\"";
  each_character(text, [&](std::string_view one, bool well_formed) {
    if (!well_formed)
      quoted += "\xEF\xBF\xBD";
    else if (one == "\"" || one == "\\")
      quoted.append("\\").append(one);
    else if (static_cast<unsigned char>(one[0]) < 0x20 || one[0] == 0x7f)
      quoted += fmt::format("\\u{:04x}", static_cast<unsigned>(one[0]));
    else
      quoted += one;
  });
  return quoted + "\"";
}

std::string json_number(double value) {
  return std::isfinite(value) ? fmt::format("{}", value) : "null";
}

std::string Streamed::add(std::string_view bytes) {
  waiting_ += bytes;
  // The last character may be cut: at most three of its bytes are there.
  std::size_t whole = waiting_.size();
  for (std::size_t back = 1; back <= 3 && back <= waiting_.size(); ++back) {
    const auto lead = static_cast<unsigned char>(waiting_[waiting_.size() - back]);
    if ((lead & 0xC0U) == 0x80U)
      continue;
    if (promised_bytes(lead) > back)
      whole = waiting_.size() - back;
    break;
  }
  std::string shown = for_terminal(std::string_view(waiting_).substr(0, whole));
  waiting_.erase(0, whole);
  return shown;
}

std::string Streamed::finish() {
  return for_terminal(std::exchange(waiting_, {}));
}

}  // namespace trireme::text
