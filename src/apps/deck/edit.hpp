// SPDX-License-Identifier: Apache-2.0
// The text of a deck with other values of some keys: what was there stays, comments, order and
// layout included.
//
// 1. A key that is given has its value replaced in its place; a list becomes one in brackets. One
//    that is not is added to its section, and a section that is not there at the end.
// 2. What comes out is read again: every other key must have the value that it had, else there is
//    no result. So a deck whose layout is not understood is never damaged.
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

/// Nothing where that cannot be done to this text. Requires: the text is a deck that read() has no
/// findings on; paths of two names.
std::optional<std::string> with_values(const std::string& bytes,
                                       const std::vector<KeyValue>& values);

}  // namespace trireme::deck
