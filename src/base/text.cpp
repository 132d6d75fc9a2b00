// SPDX-License-Identifier: Apache-2.0
#include "base/text.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

namespace trireme {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0U : 1U)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

std::optional<std::string> nearest(std::string_view word,
                                   const std::vector<std::string>& candidates) {
  const auto best = std::ranges::min_element(
      candidates, {}, [&](const std::string& known) { return edit_distance(known, word); });
  if (best == candidates.end() || edit_distance(*best, word) > 2)
    return std::nullopt;
  return *best;
}

std::string bytes_text(double bytes) {
  static constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  for (; bytes >= (unit == 0 ? 1024 : 1023.5) && unit < 4; ++unit) bytes /= 1024;
  // Three digits, but "1023 KiB" rather than "1.02e+03 KiB".
  return unit == 0 || bytes >= 999.5 ? fmt::format("{:.0f} {}", bytes, units[unit])
                                     : fmt::format("{:.3g} {}", bytes, units[unit]);
}

std::string duration_text(double seconds) {
  if (seconds < 0.9995)
    return fmt::format("{:.3g} ms", seconds * 1e3);
  if (seconds < 59.95)
    return fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<long long>(std::llround(seconds));
  if (whole < 3600)
    return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole % 3600 / 60);
}

std::string count_text(double count) {
  if (count < 999.5)
    return fmt::format("{:.0f}", count);
  static constexpr const char* units[] = {"", " k", " M", " G", " T"};
  std::size_t unit = 0;
  for (; count >= 999.5 && unit < 4; ++unit) count /= 1000;
  const int decimals = count < 9.995 ? 2 : count < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f}{}", count, decimals, units[unit]);
}

}  // namespace trireme
