// SPDX-License-Identifier: Apache-2.0
// YAML text as a tree in which every node has its place. The tree is built from yaml-cpp's event
// stream and not from its Node: events show duplicate keys (YAML::Load of 0.7 keeps the first
// without a word), a second document, anchors, and whether a word was quoted.
//
// A deck uses plain YAML: maps, lists, words. Anchors, aliases, merge keys, tags and keys that are
// no words are findings; what they stand for becomes a broken node, about which nothing more is
// reported.
#pragma once

#include <string>
#include <vector>

#include "base/error.hpp"

namespace trireme::deck {

struct Node {
  enum class Kind { null, word, list, map, broken };

  Kind kind = Kind::null;
  Place place;                 ///< of the value; of the key when there is no value
  std::string word;            ///< Kind::word
  bool quoted = false;         ///< "…", '…' or a block scalar: text, never a number or keyword
  std::vector<Node> children;  ///< list: elements; map: values with their keys, duplicates included
  std::string key;             ///< in a map
  Place key_place;
};

/// The last child of that name, which counts; null: there is none.
Node* child_of(Node& map, const std::string& key);

/// What a message calls a node: "a list", "'1e3'".
std::string in_words(const Node& node);

/// Where the text begins; line and column of the tree's places count on from here.
struct TextOrigin {
  std::string file;
  int line = 1;
  int column = 1;
};

/// The only document in `text`; Kind::null when there is none. What the text cannot mean is added
/// to `findings`; after a syntax error the tree is Kind::broken.
Node parse_yaml(const std::string& text,
                const TextOrigin& origin,
                std::vector<Diagnostic>& findings);

}  // namespace trireme::deck
