// SPDX-License-Identifier: Apache-2.0
// JSON output of the commands. NaN and infinities, which JSON cannot express, become null.
#pragma once

#include <optional>
#include <string>

#include <nlohmann/json.hpp>

namespace trireme {

/// Members of an object keep their order.
using Json = nlohmann::ordered_json;

/// Serializes a value on one line, without a line feed. Bytes that are not UTF-8 become U+FFFD;
/// U+007F to U+009F are escaped.
std::string json_line(const Json& value);

/// The same with each member on a line of its own, indented, and a final line feed.
std::string json_text(const Json& value, int indent = 1);

template <class T>
Json json_or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

}  // namespace trireme
