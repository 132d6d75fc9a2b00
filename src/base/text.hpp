// SPDX-License-Identifier: Apache-2.0
// Text for messages: spelling distance for "did you mean", sizes and durations with units.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

/// Levenshtein distance: insertions, deletions and replacements, each 1.
std::size_t edit_distance(std::string_view a, std::string_view b);

/// The candidate nearest to `word`, when it is at most 2 edits away.
std::optional<std::string> nearest(std::string_view word,
                                   const std::vector<std::string>& candidates);

/// "512 B", "1.5 KiB", "3.25 GiB".
std::string bytes_text(double bytes);
/// "850 ms", "12.3 s", "4 min 05 s", "3 h 12 min".
std::string duration_text(double seconds);
/// "950", "12.3 k", "1.24 M", "3.10 G".
std::string count_text(double count);

}  // namespace trireme
