// SPDX-License-Identifier: Apache-2.0
// JSON as the verbs write it. NaN and infinities, which JSON cannot express, become null.
#pragma once

#include <optional>
#include <string>

#include <nlohmann/json.hpp>

namespace trireme {

/// Its members keep their order.
using Json = nlohmann::ordered_json;

/// The text of a value, with a line feed at its end; with `indent` -1 in one line. Bytes that are
/// not UTF-8 become U+FFFD.
std::string json_text(const Json& value, int indent = 1);

template <class T>
Json json_or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

}  // namespace trireme
