// SPDX-License-Identifier: Apache-2.0
#include "base/kernel_text.hpp"

#include <charconv>
#include <fstream>
#include <sstream>

namespace trireme {

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string trimmed(std::string_view text) {
  const auto begin = text.find_first_not_of(" \t\n");
  if (begin == std::string_view::npos)
    return {};
  return std::string(text.substr(begin, text.find_last_not_of(" \t\n") - begin + 1));
}

std::optional<std::int64_t> number_at(std::string_view text) {
  std::int64_t number = 0;
  if (std::from_chars(text.data(), text.data() + text.size(), number).ec != std::errc())
    return {};
  return number;
}

}  // namespace trireme
