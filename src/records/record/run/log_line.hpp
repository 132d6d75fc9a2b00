// SPDX-License-Identifier: Apache-2.0
// Lines of RUN_DIR/steps.jsonl (run_log.hpp): a JSON object each, which begins with its kind and
// ends with a checksum of the bytes before it:
//
//   {"kind": "step", "step": 7, "loss": 4.25, …, "crc32": "9ae0daaf"}
//
// 1. A number is the shortest text that reads back as the same bits, with ".0" or an exponent where
//    it is a floating-point number.
// 2. NaN and infinities are null, because JSON cannot express them; null is read as NaN.
// 3. Text that is not UTF-8 gets U+FFFD in the place of its bytes.
//
// Source of the format: RFC 8259 (JSON), jsonlines.org; CRC-32 of ISO 3309, as zlib computes it.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include <fmt/format.h>

#include "base/json.hpp"

#include "record/run/rows.hpp"
#include "record/run/run_log.hpp"

namespace trireme::record {

/// A JSON string, with its quotes.
std::string json_text(const std::string& text);
std::string json_text(double value);
inline std::string json_text(std::int64_t value) {
  return fmt::format("{}", value);
}

/// CRC-32 of bytes that follow others, whose sum `before` is.
std::uint32_t crc32_of(std::string_view bytes, std::uint32_t before = 0);

/// The line of a kind, with its line feed. `fields`: each as ", \"name\": value".
std::string log_line(std::string_view kind, const std::string& fields);

/// The kind of a line without its line feed; "" when the checksum is not the line's. The view is
/// into `line`.
std::string_view kind_of(std::string_view line);

/// The object of a line that has a kind; an empty one where it is something else.
Json parse_line(std::string_view line);

/// Reads a member of an object, if it has one of this type; null is NaN.
template <class T>
void read_member(const Json& object, const char* name, T& value) {
  const auto found = object.find(name);
  if (found == object.end())
    return;
  if constexpr (std::is_same_v<T, std::string>) {
    if (found->is_string())
      value = found->template get<std::string>();
  } else if (found->is_number()) {
    value = found->template get<T>();
  } else if constexpr (std::is_same_v<T, double>) {
    value = not_known;
  }
}
/// The member; "" and 0 where there is none of that type.
template <class T>
T member(const Json& object, const char* name) {
  T value{};
  read_member(object, name, value);
  return value;
}

template <class T>
std::string field(std::string_view name, const T& value) {
  return fmt::format(", \"{}\": {}", name, json_text(value));
}

/// All columns of a row, as log_line() takes them.
template <class Row>
std::string fields_of(const Row& row) {
  std::string text;
  Row::columns(row,
               [&](const char* name, const auto& value, auto...) { text += field(name, value); });
  return text;
}

/// The row of an object. A column that it lacks or has with another type keeps its default.
template <class Row>
Row row_of(const Json& object) {
  Row row;
  Row::columns(row,
               [&](const char* name, auto& value, auto...) { read_member(object, name, value); });
  return row;
}

/// Whether a line with this row still counts. A row of several steps is one of its last.
template <class Row>
bool keeps(const Rewinds& rewinds, std::int64_t line, const Row& row) {
  if constexpr (requires { row.step; })
    return rewinds.keep(line, row.step);
  else if constexpr (requires { row.last_step; })
    return rewinds.keep(line, row.last_step);
  else
    return rewinds.keep(line, row.first_step);
}

/// Calls `each` with the rows of a table that count, in the order of the log. Throws StorageError.
template <class Row, class Each>
void read_rows(const std::string& log, const Rewinds& rewinds, Each&& each) {
  for_each_line(log, [&](std::int64_t number, std::string_view line) {
    if (kind_of(line) != Row::table.kind)
      return;
    const auto row = row_of<Row>(parse_line(line));
    if (keeps(rewinds, number, row))
      each(row);
  });
}

}  // namespace trireme::record
