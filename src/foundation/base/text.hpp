// SPDX-License-Identifier: Apache-2.0
// Text for messages: spelling distance for "did you mean", sizes and durations with units, and
// untrusted bytes in a form that a terminal may show.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trireme {

/// Levenshtein distance: insertions, deletions and replacements, each 1.
std::size_t edit_distance(std::string_view a, std::string_view b);

/// The candidate nearest to `word`, when it is at most 2 edits away.
std::optional<std::string> nearest(std::string_view word,
                                   const std::vector<std::string>& candidates);

/// `text` fit for a terminal: line breaks, tabs and well-formed UTF-8 without control characters as
/// they are, anything else as \xNN.
std::string for_terminal(std::string_view text);
/// The same for text that arrives in pieces, which may end inside of a character.
class Streamed {
 public:
  /// What can be shown now that `bytes` have arrived: everything but a character at the end that
  /// may still become whole.
  std::string add(std::string_view bytes);
  /// The rest, when nothing more arrives.
  std::string finish() { return for_terminal(std::exchange(waiting_, {})); }

 private:
  std::string waiting_;
};
/// Length of a character that begins with this byte, if it is well-formed; 1 for a byte that begins
/// none.
std::size_t promised_bytes(char lead);
/// Length of the character at the beginning of `text`, which is not empty: 2 to 4 for a well-formed
/// sequence of UTF-8, 1 for ASCII and for a byte that belongs to no such sequence.
std::size_t character_bytes(std::string_view text);

/// "512 B", "1.5 KiB", "3.25 GiB".
std::string bytes_text(double bytes);
std::string bytes_text(std::integral auto bytes) {
  return bytes_text(static_cast<double>(bytes));
}
/// "850 ms", "12.3 s", "4 min 05 s", "3 h 12 min".
std::string duration_text(double seconds);
/// "1 rank", "2 ranks".
std::string counted(std::int64_t count, std::string_view thing);
/// "950", "12.3 k", "1.24 M", "3.10 G".
std::string count_text(double count);
std::string count_text(std::integral auto count) {
  return count_text(static_cast<double>(count));
}

}  // namespace trireme
