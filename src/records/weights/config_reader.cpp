// SPDX-License-Identifier: Apache-2.0
#include "weights/config_reader.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace trireme::weights {

using text::Json;

void ConfigReader::read_tables(model::GptShape& shape) {
  for (const SizeRule& rule : family_.sizes) size(rule, shape);
  for (const FixedRule& rule : family_.fixed) fixed(rule);
  if (family_.head_width_key != nullptr &&
      (family_.head_width > 0 || !value(family_.head_width_key).is_null()))
    shape.set_head_channels(count(family_.head_width_key, family_.head_width, 65536));
  if (shape.heads > 0 && shape.head_width == 0 && shape.channels % shape.heads != 0)
    say(family_.heads_key,
        fmt::format("{} heads do not divide {} channels", shape.heads, shape.channels));
}

void ConfigReader::say(const std::string& key, std::string text) {
  findings_.push_back({{path_}, key, std::move(text)});
}

bool ConfigReader::flag(const char* key, bool otherwise) {
  const Json& given = value(key);
  if (!given.is_null() && !given.is_boolean())
    say(key, "must be true or false");
  return given.is_boolean() ? given.get<bool>() : otherwise;
}

std::int64_t ConfigReader::count(const char* key, std::int64_t otherwise, std::int64_t most) {
  const Json& given = value(key);
  if (given.is_null() && otherwise > 0)
    return otherwise;
  if (given.is_number_unsigned() && given.get<std::uint64_t>() >= 1 &&
      given.get<std::uint64_t>() <= static_cast<std::uint64_t>(most))
    return given.get<std::int64_t>();
  say(key, fmt::format("{}; it must be an integer from 1 to {}",
                       given.is_null() ? "missing" : text::shortened(given.dump()), most));
  return otherwise;
}

double ConfigReader::positive(const Json& value, const std::string& key, double otherwise) {
  if (value.is_null())
    return otherwise;
  if (value.is_number() && value.get<double>() > 0)
    return value.get<double>();
  say(key, fmt::format("{}; it must be a positive number", text::shortened(value.dump())));
  return otherwise;
}

void ConfigReader::size(const SizeRule& rule, model::GptShape& shape) {
  shape.*rule.size = count(rule.key, 0, rule.most);
}

void ConfigReader::fixed(const FixedRule& rule) {
  const Json& given = value(rule.key);
  if (given.is_null() && !rule.required)
    return;
  std::string_view rest = rule.values;
  constexpr std::string_view between = " or ";
  while (!rest.empty()) {
    const auto end = std::min(rest.find(between), rest.size());
    if (given == Json::parse(rest.substr(0, end)))
      return;
    rest.remove_prefix(std::min(end + between.size(), rest.size()));
  }
  say(rule.key, fmt::format("{}: {}; it must be {}",
                            given.is_null() ? "missing" : text::shortened(given.dump()),
                            rule.otherwise, rule.values));
}

}  // namespace trireme::weights
