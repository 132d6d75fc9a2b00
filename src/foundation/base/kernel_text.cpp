// SPDX-License-Identifier: Apache-2.0
#include "base/kernel_text.hpp"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>

#include <sys/resource.h>

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

std::string value_of(std::string_view text, std::string_view key) {
  constexpr std::string_view between = " \t:";
  for (std::size_t at = 0; at < text.size();) {
    const auto end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    if (line.starts_with(key) && between.find(line.substr(key.size(), 1)) != between.npos)
      return trimmed(
          line.substr(std::min(line.find_first_not_of(between, key.size()), line.size())));
    at = end + 1;
  }
  return {};
}

std::int64_t bytes_of(std::string_view text, std::string_view key) {
  return number_at(value_of(text, key)).value_or(0) * 1024;
}

std::optional<std::int64_t> ulimit_of(int resource) {
  rlimit limit{};
  if (::getrlimit(static_cast<__rlimit_resource_t>(resource), &limit) != 0 ||
      limit.rlim_cur == RLIM_INFINITY)
    return std::nullopt;
  return static_cast<std::int64_t>(limit.rlim_cur);
}

std::optional<std::int64_t> number_at(std::string_view text) {
  std::int64_t number = 0;
  if (std::from_chars(text.data(), text.data() + text.size(), number).ec != std::errc())
    return {};
  return number;
}

}  // namespace trireme
