// SPDX-License-Identifier: Apache-2.0
#include "record/also/row_text.hpp"

#include <charconv>
#include <cmath>
#include <system_error>
#include <type_traits>
#include <variant>

#include <fmt/format.h>

#include "record/run/run_schema.hpp"

namespace trireme::record {
namespace {

constexpr std::string_view json_begin = "{\"step\": ";

/// `not_finite`: for NaN and infinities; null: nan, inf, -inf.
template <class T>
std::string number_text(T value, const char* not_finite) {
  if constexpr (std::is_floating_point_v<T>) {
    if (!std::isfinite(value) && not_finite != nullptr)
      return not_finite;
    std::string text = fmt::format("{}", value);
    if (std::isfinite(value) && text.find_first_of(".e") == std::string::npos)
      text += ".0";
    return text;
  } else {
    return fmt::format("{}", value);
  }
}

/// Name and value of every column.
template <class Row, class Columns, class Visit>
void each_value(const Row& row, const Columns& columns, Visit&& visit) {
  for (const auto& column : columns)
    std::visit([&](auto member) { visit(column.name, row.*member); }, column.member);
}

template <class Row, class Columns>
std::string json_of(const Row& row, const Columns& columns) {
  std::string line;
  each_value(row, columns, [&](const char* name, auto value) {
    line +=
        fmt::format("{}\"{}\": {}", line.empty() ? "{" : ", ", name, number_text(value, "null"));
  });
  return line + "}\n";
}

template <class Row, class Columns>
std::string csv_of(const Row& row, const Columns& columns) {
  std::string line;
  each_value(row, columns, [&](const char*, auto value) {
    line += (line.empty() ? "" : ",") + number_text(value, nullptr);
  });
  return line + "\n";
}

template <class Columns>
std::string names_of(const Columns& columns) {
  std::string line;
  for (const auto& column : columns) line += (line.empty() ? "" : ",") + std::string(column.name);
  return line + "\n";
}

}  // namespace

std::string json_line(const StepRow& row) {
  return json_of(row, step_columns);
}
std::string json_line(const ValidationRow& row) {
  return json_of(row, validation_columns);
}
std::string csv_line(const StepRow& row) {
  return csv_of(row, step_columns);
}
std::string csv_line(const ValidationRow& row) {
  return csv_of(row, validation_columns);
}
std::string csv_header(const StepRow&) {
  return names_of(step_columns);
}
std::string csv_header(const ValidationRow&) {
  return names_of(validation_columns);
}

std::optional<std::int64_t> step_of_line(std::string_view line) {
  if (line.starts_with(json_begin))
    line.remove_prefix(json_begin.size());
  std::int64_t step = 0;
  const auto [end, problem] = std::from_chars(line.data(), line.data() + line.size(), step);
  if (problem != std::errc() || end == line.data() + line.size() || *end != ',')
    return std::nullopt;
  return step;
}

}  // namespace trireme::record
