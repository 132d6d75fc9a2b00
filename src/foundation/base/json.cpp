// SPDX-License-Identifier: Apache-2.0
#include "base/json.hpp"

#include <fmt/format.h>

namespace trireme {
namespace {

/// Escapes U+007F to U+009F, which for_terminal() would show as \x7f: that is not JSON.
std::string dumped(const Json& value, int indent) {
  const std::string text = value.dump(indent, ' ', false, Json::error_handler_t::replace);
  std::string escaped;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto at = [&](std::size_t k) { return static_cast<unsigned char>(text[k]); };
    if (at(i) == 0x7f)
      escaped += "\\u007f";
    else if (at(i) == 0xC2 && at(i + 1) < 0xA0)  // whole characters: dump() replaces others
      escaped += fmt::format("\\u{:04x}", at(++i));
    else
      escaped += text[i];
  }
  return escaped;
}

}  // namespace

std::string json_line(const Json& value) {
  return dumped(value, -1);
}

std::string json_text(const Json& value, int indent) {
  return dumped(value, indent) + "\n";
}

}  // namespace trireme
