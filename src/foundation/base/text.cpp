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

std::size_t promised_bytes(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0xC2 || byte > 0xF4 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

std::size_t character_bytes(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  const std::size_t bytes = promised_bytes(text[0]);
  if (bytes == 1 || text.size() < bytes)
    return 1;
  // Only the shortest encoding, no surrogates, at most U+10FFFF (Unicode, table 3-7).
  const unsigned char lowest = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned char highest = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  if (byte(1) < lowest || byte(1) > highest)
    return 1;
  for (std::size_t i = 2; i < bytes; ++i)
    if (byte(i) < 0x80 || byte(i) > 0xBF)
      return 1;
  return bytes;
}

std::string for_terminal(std::string_view text) {
  std::string shown;
  for (std::size_t i = 0, bytes = 0; i < text.size(); i += bytes) {
    bytes = character_bytes(text.substr(i));
    const std::string_view one = text.substr(i, bytes);
    const auto first = static_cast<unsigned char>(one[0]);
    // U+0080 to U+009F are control characters as well.
    const bool control = bytes == 1
                             ? first != '\n' && first != '\t' && (first >= 0x7f || first < 0x20)
                             : first == 0xC2 && static_cast<unsigned char>(one[1]) < 0xA0;
    if (!control)
      shown += one;
    else
      for (const char c : one) shown += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  }
  return shown;
}

std::string Streamed::add(std::string_view bytes) {
  waiting_ += bytes;
  // The last character may be incomplete, with at most three of its bytes present.
  std::size_t whole = waiting_.size();
  for (std::size_t back = 1; back <= 3 && back <= waiting_.size(); ++back) {
    const char lead = waiting_[waiting_.size() - back];
    if ((lead & 0xC0) == 0x80)
      continue;
    if (promised_bytes(lead) > back)
      whole = waiting_.size() - back;
    break;
  }
  std::string shown = for_terminal(std::string_view(waiting_).substr(0, whole));
  waiting_.erase(0, whole);
  return shown;
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
  if (seconds > 1e15)
    return fmt::format("{:.3g} h", seconds / 3600);
  const auto whole = static_cast<long long>(std::llround(seconds));
  if (whole < 3600)
    return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole % 3600 / 60);
}

std::string step_time_text(double seconds) {
  return seconds < 1 ? fmt::format("{:.2f} ms", seconds * 1e3) : fmt::format("{:.3f} s", seconds);
}

std::string counted(std::int64_t count, std::string_view thing) {
  return fmt::format("{} {}{}", count, thing, count == 1 ? "" : "s");
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
