// SPDX-License-Identifier: Apache-2.0
#include "record/run/log_line.hpp"

#include <zlib.h>

namespace trireme::record {
namespace {

constexpr std::string_view before_kind = "{\"kind\": \"", before_sum = ", \"crc32\": \"";
constexpr std::string_view after_sum = "\"}";
constexpr std::size_t sum_digits = 8;

std::string sum_of(std::string_view bytes) {
  return fmt::format("{:08x}", crc32_of(bytes));
}

}  // namespace

std::uint32_t crc32_of(std::string_view bytes, std::uint32_t before) {
  const auto* data = reinterpret_cast<const Bytef*>(bytes.data());
  return static_cast<std::uint32_t>(::crc32_z(before, data, bytes.size()));
}

std::string json_text(const std::string& text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string json_text(double value) {
  if (!std::isfinite(value))
    return "null";
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos)
    text += ".0";
  return text;
}

std::string log_line(std::string_view kind, const std::string& fields) {
  std::string line = fmt::format("{}{}\"{}", before_kind, kind, fields);
  line += fmt::format("{}{}{}\n", before_sum, sum_of(line), after_sum);
  return line;
}

std::string_view kind_of(std::string_view line) {
  const std::size_t end = before_sum.size() + sum_digits + after_sum.size();
  if (!line.starts_with(before_kind) || line.size() < before_kind.size() + end)
    return {};
  const std::string_view summed = line.substr(0, line.size() - end);
  const std::string_view sum = line.substr(summed.size());
  if (!sum.starts_with(before_sum) || !sum.ends_with(after_sum) ||
      sum.substr(before_sum.size(), sum_digits) != sum_of(summed))
    return {};
  const std::string_view from_kind = summed.substr(before_kind.size());
  return from_kind.substr(0, from_kind.find('"'));
}

Json parse_line(std::string_view line) {
  Json object = Json::parse(line, nullptr, false);
  return object.is_object() ? object : Json::object();
}

}  // namespace trireme::record
