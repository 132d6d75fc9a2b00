// SPDX-License-Identifier: Apache-2.0
// Parses YAML into a tree in which every node has its place. The tree is built from yaml-cpp's
// events instead of its Node, because events show duplicate keys (YAML::Load of 0.7 silently keeps
// the first), a second document, anchors, and quotes.
//
// A deck uses plain YAML: maps, lists, words. Anchors, aliases, merge keys, tags and keys that are
// not words are findings. Each becomes a broken node, for which nothing else is reported.
#pragma once

#include <string>
#include <vector>

#include "base/error.hpp"

namespace trireme::deck {

struct Node {
  enum class Kind { null, word, list, map, broken };

  Kind kind = Kind::null;
  Place place;                 ///< of the value, else of the key
  std::string word;            ///< Kind::word
  bool quoted = false;         ///< "…", '…' or a block scalar: text, never a number or keyword
  std::vector<Node> children;  ///< list: elements; map: values with their keys, duplicates included
  std::string key;             ///< in a map
  Place key_place;
};

/// The last child with that key, which is the valid one; null if there is none.
Node* child_of(Node& map, const std::string& key);

/// A node in a message: "a list", "'1e3'".
std::string in_words(const Node& node);

/// The place of the beginning of the text.
struct TextOrigin {
  std::string file;
  int line = 1;
  int column = 1;
};

/// The only document in `text`; Kind::null if there is none. Errors are added to `findings`; after
/// a syntax error the tree is Kind::broken.
Node parse_yaml(const std::string& text,
                const TextOrigin& origin,
                std::vector<Diagnostic>& findings);

}  // namespace trireme::deck
