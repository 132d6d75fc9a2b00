// SPDX-License-Identifier: Apache-2.0
// Changes values in the text of a deck and preserves everything else: comments, order, layout.
//
// 1. The value of a given key is replaced; a list is written in brackets. Other keys are added to
//    their section, and missing sections at the end.
// 2. The result is read again. It must have the same content as the deck with an override, else there
//    is no result, so a deck whose layout is not understood is never damaged.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace trireme::deck {

struct KeyValue {
  std::string path;   ///< "section.key"
  std::string value;  ///< as YAML on one line: yaml_text()

  bool operator==(const KeyValue&) const = default;
};

/// The changed text, or nothing if this text cannot be changed safely. Requires: read() has no
/// findings on the text; paths of two names.
std::optional<std::string> with_values(const std::string& bytes,
                                       const std::vector<KeyValue>& values);

}  // namespace trireme::deck
