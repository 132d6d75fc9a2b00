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

template <class T>
std::string number_text(T value) {
  std::string text = fmt::format("{}", value);
  if constexpr (std::is_floating_point_v<T>) {
    if (!std::isfinite(value))
      return "null";
    if (text.find_first_of(".e") == std::string::npos)
      text += ".0";
  }
  return text;
}

template <class Row, class Columns>
std::string json_of(const Row& row, const Columns& columns) {
  std::string line;
  for (const auto& column : columns) {
    const std::string value =
        std::visit([&](auto member) { return number_text(row.*member); }, column.member);
    line += fmt::format("{}\"{}\": {}", line.empty() ? "{" : ", ", column.name, value);
  }
  return line + "}\n";
}

}  // namespace

std::string json_line(const StepRow& row) {
  return json_of(row, step_columns);
}
std::string json_line(const ValidationRow& row) {
  return json_of(row, validation_columns);
}

std::optional<std::int64_t> step_of_line(std::string_view line) {
  if (!line.starts_with(json_begin))
    return std::nullopt;
  line.remove_prefix(json_begin.size());
  std::int64_t step = 0;
  const auto [end, problem] = std::from_chars(line.data(), line.data() + line.size(), step);
  if (problem != std::errc() || end == line.data() + line.size() || *end != ',')
    return std::nullopt;
  return step;
}

}  // namespace trireme::record
