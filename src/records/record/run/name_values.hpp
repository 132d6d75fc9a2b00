// SPDX-License-Identifier: Apache-2.0
// Named facts in a fixed order: deck keys, versions, model sizes. Callers convert their structs to
// facts, so `record` depends neither on the deck nor on the model.
#pragma once

#include <algorithm>
#include <ctime>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trireme::record {

using NameValues = std::vector<std::pair<std::string, std::string>>;

inline const std::string* find_fact(const NameValues& facts, std::string_view name) {
  const auto found = std::ranges::find(facts, name, &NameValues::value_type::first);
  return found == facts.end() ? nullptr : &found->second;
}
/// The value of a fact; "" if it is absent.
inline std::string fact_of(const NameValues& facts, std::string_view name) {
  const std::string* found = find_fact(facts, name);
  return found == nullptr ? "" : *found;
}

/// The current UTC time: "2026-08-01 17:04:05 +0000". Source: openPMD 1.1, attribute `date`.
inline std::string date_and_time() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S +0000", &utc);
  return text;
}

}  // namespace trireme::record
