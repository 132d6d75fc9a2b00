// SPDX-License-Identifier: Apache-2.0
// Text for messages: spelling distance for "did you mean", sizes and durations with units, and
// escaping of untrusted bytes for terminals.
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

/// The nearest candidate that is at most 2 edits away from `word`.
std::optional<std::string> nearest(std::string_view word,
                                   const std::vector<std::string>& candidates);

/// Escapes `text` for a terminal: line breaks, tabs and valid UTF-8 without control characters are
/// kept, and all other bytes become \xNN.
std::string for_terminal(std::string_view text);
/// The same for text that arrives in pieces, which may end within a character.
class Streamed {
 public:
  /// Returns what can be shown after `bytes` have arrived: everything except an incomplete
  /// character at the end.
  std::string add(std::string_view bytes);
  /// Call at the end of the text. Returns the rest.
  std::string finish() { return for_terminal(std::exchange(waiting_, {})); }

 private:
  std::string waiting_;
};
/// Length in bytes of a UTF-8 character that begins with this byte; 1 if none begins with it.
std::size_t promised_bytes(char lead);
/// Length in bytes of the first character of `text`: 2 to 4 for a valid UTF-8 sequence, 1 for ASCII
/// and for an invalid byte. Requires: `text` is not empty.
std::size_t character_bytes(std::string_view text);

/// "512 B", "1.5 KiB", "3.25 GiB".
std::string bytes_text(double bytes);
std::string bytes_text(std::integral auto bytes) {
  return bytes_text(static_cast<double>(bytes));
}
/// "850 ms", "12.3 s", "4 min 05 s", "3 h 12 min".
std::string duration_text(double seconds);
/// "80.25 ms", "1.234 s".
std::string step_time_text(double seconds);
/// "1 rank", "2 ranks".
std::string counted(std::int64_t count, std::string_view thing);
/// "950", "12.3 k", "1.24 M", "3.10 G".
std::string count_text(double count);
std::string count_text(std::integral auto count) {
  return count_text(static_cast<double>(count));
}

}  // namespace trireme
