// SPDX-License-Identifier: Apache-2.0
// Lines of RUN_DIR/steps.jsonl (run_log.hpp). Each is a JSON object that begins with its kind and
// ends with a checksum of the preceding bytes:
//
//   {"kind": "step", "step": 7, "loss": 4.25, …, "crc32": "9ae0daaf"}
//
// 1. A number is the shortest text that reads back as the same bits. Floating-point numbers have
//    ".0" or an exponent if they have no fraction.
// 2. NaN and infinities are null, because JSON cannot express them; null is read as NaN.
// 3. Invalid UTF-8 bytes in a text are replaced by U+FFFD.
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

/// CRC-32 of `bytes`, continuing from `before`, the CRC-32 of the bytes that precede them.
std::uint32_t crc32_of(std::string_view bytes, std::uint32_t before = 0);

/// The line of a kind, with a line feed. `fields`: each as ", \"name\": value".
std::string log_line(std::string_view kind, const std::string& fields);

/// The kind of a line without its line feed, as a view of it; "" if its checksum is wrong.
std::string_view kind_of(std::string_view line);

/// Parses a line that has a kind; an empty object if it is not a JSON object.
Json parse_line(std::string_view line);

/// Reads a member if it exists with the type of `value`; null is read as NaN.
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
/// The member, or "" or 0 if it is missing or has another type.
template <class T>
T member(const Json& object, const char* name) {
  T value{};
  read_member(object, name, value);
  return value;
}

template <class T>
std::string field(std::string_view name, const T& value) {
  return fmt::format(", \"{}\": {}", name, json_line(value));
}

/// All columns of a row, as `fields` of log_line().
template <class Row>
std::string fields_of(const Row& row) {
  std::string text;
  Row::columns(row,
               [&](const char* name, const auto& value, auto...) { text += field(name, value); });
  return text;
}

/// The row in an object. Columns that are missing or of another type keep their default.
template <class Row>
Row row_of(const Json& object) {
  Row row;
  Row::columns(row,
               [&](const char* name, auto& value, auto...) { read_member(object, name, value); });
  return row;
}

/// Whether the row of this line is valid. A row of several steps counts as one of its last step.
template <class Row>
bool keeps(const Rewinds& rewinds, std::int64_t line, const Row& row) {
  if constexpr (requires { row.step; })
    return rewinds.keep(line, row.step);
  else if constexpr (requires { row.last_step; })
    return rewinds.keep(line, row.last_step);
  else
    return rewinds.keep(line, row.first_step);
}

/// Calls `each` with the valid rows of a table, in the order of the log. Throws StorageError.
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
