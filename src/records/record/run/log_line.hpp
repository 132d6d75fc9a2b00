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
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

#include <fmt/format.h>

#include "base/json.hpp"

#include "record/run/columns.hpp"
#include "record/run/run_log.hpp"
#include "record/run/run_schema.hpp"

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

/// Members of an object; "", 0 and NaN where there is none of that type.
std::string text_in(const Json& object, const char* name);
std::int64_t whole_in(const Json& object, const char* name);
double number_in(const Json& object, const char* name);

template <class T>
std::string field(std::string_view name, const T& value) {
  return fmt::format(", \"{}\": {}", name, json_text(value));
}

/// All columns of a row, as log_line() takes them.
template <class Row, class Columns>
std::string fields_of(const Row& row, const Columns& columns) {
  std::string text;
  for (const auto& column : columns)
    text += std::visit([&](auto member) { return field(column.name, row.*member); }, column.member);
  return text;
}

/// The row of an object. A column that it lacks or has with another type keeps its default.
template <class Row, class Columns>
Row row_of(const Json& object, const Columns& columns) {
  Row row;
  for (const auto& column : columns) {
    const auto found = object.find(column.name);
    if (found == object.end())
      continue;
    std::visit(
        [&]<class T>(T Row::*member) {
          if constexpr (std::is_same_v<T, std::string>) {
            if (found->is_string())
              row.*member = found->template get<std::string>();
          } else if (found->is_number()) {
            row.*member = found->template get<T>();
          } else if constexpr (std::is_same_v<T, double>) {
            row.*member = std::numeric_limits<double>::quiet_NaN();
          }
        },
        column.member);
  }
  return row;
}

/// Calls `each` with the rows of a table that count, in the order of the log. Throws StorageError.
template <class Row, class Each>
void read_rows(const std::string& log, const Rewinds& rewinds, Each&& each) {
  for_each_line(log, [&](std::int64_t number, std::string_view line) {
    if (kind_of(line) != Table<Row>::kind)
      return;
    const auto row = row_of<Row>(parse_line(line), Table<Row>::columns);
    if (rewinds.keep(number, row.*Table<Row>::key))
      each(row);
  });
}

}  // namespace trireme::record
