// SPDX-License-Identifier: Apache-2.0
// JSON output of the commands. NaN and infinities, which JSON cannot express, become null.
#pragma once

#include <optional>
#include <string>

#include <nlohmann/json.hpp>

namespace trireme {

/// Members of an object keep their order.
using Json = nlohmann::ordered_json;

/// Serializes a value, with a final line feed; on one line if `indent` is -1. Bytes that are not
/// UTF-8 become U+FFFD.
std::string json_text(const Json& value, int indent = 1);

template <class T>
Json json_or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

}  // namespace trireme
