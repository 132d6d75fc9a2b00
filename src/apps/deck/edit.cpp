// SPDX-License-Identifier: Apache-2.0
#include "deck/edit.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "base/error.hpp"

#include "deck/yaml.hpp"

namespace trireme::deck {
namespace {

using Result = std::optional<std::string>;

std::optional<Node> tree_of(const std::string& text) {
  std::vector<Diagnostic> findings;
  Node root = parse_yaml(text, {}, findings);
  if (!findings.empty() || root.kind != Node::Kind::map)
    return std::nullopt;
  return root;
}

/// Equal except for places.
bool same(const Node& a, const Node& b) {
  return a.kind == b.kind && a.word == b.word && a.quoted == b.quoted && a.key == b.key &&
         std::ranges::equal(a.children, b.children, same);
}

/// Sets the value in the tree, at the end of its section if it is new.
void put(Node& root, const std::string& section, const std::string& key, const Node& value) {
  Node* map = child_of(root, section);
  if (map == nullptr) {
    map = &root.children.emplace_back();
    map->key = section;
  }
  map->kind = Node::Kind::map;
  Node* old = child_of(*map, key);
  Node& here = old != nullptr ? *old : map->children.emplace_back();
  here = value;
  here.key = key;
}

/// Maps with the same keys in any order.
void sort_keys(Node& node) {
  for (Node& child : node.children) sort_keys(child);
  if (node.kind == Node::Kind::map)
    std::ranges::stable_sort(node.children, {}, &Node::key);
}

bool means(const std::string& text, const Node& wanted) {
  std::optional<Node> tree = tree_of(text);
  if (!tree)
    return false;
  sort_keys(*tree);
  return same(*tree, wanted);
}

class Text {
 public:
  explicit Text(std::string bytes) : bytes_(std::move(bytes)) {}

  /// The offset of a place; beyond the text if it has no such place.
  [[nodiscard]] std::size_t at(const Place& place) const {
    const std::size_t begin = line(place.line);
    return begin == std::string::npos ? begin : begin + static_cast<std::size_t>(place.column) - 1;
  }
  /// The offset of the beginning of line `number`, from 1.
  [[nodiscard]] std::size_t line(int number) const {
    std::size_t begin = 0;
    for (; number > 1; --number) {
      begin = bytes_.find('\n', begin);
      if (begin == std::string::npos)
        return begin;
      ++begin;
    }
    return begin;
  }
  [[nodiscard]] char letter(std::size_t offset) const {
    return offset < bytes_.size() ? bytes_[offset] : '\0';
  }
  /// The end of the word or list in brackets at `begin`; nothing if it cannot be found.
  [[nodiscard]] std::optional<std::size_t> end_of(std::size_t begin, const Node& value) const {
    if (value.kind == Node::Kind::list)
      return letter(begin) == '[' ? after_closing(begin, ']') : std::nullopt;
    if (value.kind != Node::Kind::word)
      return std::nullopt;
    if (const char quote = letter(begin); value.quoted && (quote == '"' || quote == '\''))
      return bytes_.compare(begin + 1, value.word.size() + 1, value.word + quote) == 0
                 ? std::optional(begin + value.word.size() + 2)
                 : std::nullopt;
    return bytes_.compare(begin, value.word.size(), value.word) == 0
               ? std::optional(begin + value.word.size())
               : std::nullopt;
  }
  [[nodiscard]] std::string with(std::size_t begin, std::size_t end, std::string_view put) const {
    return bytes_.substr(0, begin).append(put) + bytes_.substr(end);
  }
  [[nodiscard]] const std::string& bytes() const { return bytes_; }

  /// The end of a list of words. With brackets in quotes or comments means() refuses the result.
  [[nodiscard]] std::optional<std::size_t> after_closing(std::size_t begin, char bracket) const {
    const std::size_t end = bytes_.find(bracket, begin);
    return end == std::string::npos ? std::nullopt : std::optional(end + 1);
  }

 private:
  std::string bytes_;
};

/// Candidate texts with `line` added to a map in block style, the best first.
void entries_of_a_block(const Text& text,
                        const Node& map,
                        const std::string& entry,
                        std::vector<std::string>& tried) {
  const std::string indent(static_cast<std::size_t>(map.children.front().key_place.column) - 1,
                           ' ');
  const std::string line = indent + entry + "\n";
  if (const Node& last = map.children.back(); last.kind == Node::Kind::word) {
    const std::size_t after = text.line(last.place.line + 1);
    if (after == std::string::npos)
      tried.push_back(text.bytes() + "\n" + line);
    else
      tried.push_back(text.with(after, after, line));
  }
  const std::size_t first = text.line(map.children.front().key_place.line);
  tried.push_back(text.with(first, first, line));
}

/// The same for a map in braces.
void entries_in_braces(const Text& text,
                       const Node& map,
                       const std::string& entry,
                       std::vector<std::string>& tried) {
  const std::size_t open = text.at(map.place);
  if (map.children.empty()) {
    tried.push_back(text.with(open + 1, open + 1, entry));
    return;
  }
  const Node& last = map.children.back();
  if (const auto end = text.end_of(text.at(last.place), last))
    tried.push_back(text.with(*end, *end, ", " + entry));
  tried.push_back(text.with(open + 1, open + 1, entry + ", "));
}

void entries_of(const Text& text,
                const Node& map,
                const std::string& entry,
                std::vector<std::string>& tried) {
  if (text.letter(text.at(map.place)) == '{')
    entries_in_braces(text, map, entry, tried);
  else if (!map.children.empty())
    entries_of_a_block(text, map, entry, tried);
}

/// Candidate texts with another value of a key that has one.
void replacements(const Text& text,
                  const Node& old,
                  const std::string& value,
                  std::vector<std::string>& tried) {
  const std::size_t begin = text.at(old.place);
  const bool in_braces = old.kind == Node::Kind::map && text.letter(begin) == '{';
  if (const auto end = in_braces ? text.after_closing(begin, '}') : text.end_of(begin, old)) {
    tried.push_back(text.with(begin, *end, value));
    return;
  }
  const bool lines = old.kind == Node::Kind::list && text.letter(begin) == '-';
  if (old.children.empty() || !(lines || old.kind == Node::Kind::map))
    return;
  // A value in block style: remove its lines and write the new value after the key.
  const std::size_t from = text.line(old.place.line);
  const std::size_t to =
      std::min(text.line(old.children.back().place.line + 1), text.bytes().size());
  const std::size_t colon = text.bytes().find(':', text.at(old.key_place));
  if (colon != std::string::npos && colon < from)
    tried.push_back(Text(text.with(from, to, "")).with(colon + 1, colon + 1, " " + value));
}

Result with_value(const std::string& bytes, const KeyValue& edit) {
  const std::size_t dot = edit.path.find('.');
  TRIREME_EXPECT(dot != std::string::npos && edit.path.rfind('.') == dot, "a key '{}'", edit.path);
  const std::string section = edit.path.substr(0, dot), key = edit.path.substr(dot + 1);
  const std::string entry = key + ": " + edit.value;
  std::optional<Node> tree = tree_of(bytes);
  const std::optional<Node> alone = tree_of(entry);
  if (!tree || !alone)
    return std::nullopt;
  Node wanted = *tree;
  put(wanted, section, key, alone->children.front());
  sort_keys(wanted);

  const Text text(bytes);
  std::vector<std::string> tried;
  Node* map = child_of(*tree, section);
  if (map == nullptr) {
    const std::string line = section + ": {" + entry + "}";
    if (text.letter(text.at(tree->place)) != '{')
      tried.push_back(bytes + (bytes.ends_with('\n') ? "" : "\n") + line + "\n");
    entries_of(text, *tree, line, tried);
  } else if (map->kind == Node::Kind::map) {
    if (const Node* old = child_of(*map, key))
      replacements(text, *old, edit.value, tried);
    else
      entries_of(text, *map, entry, tried);
  } else if (map->kind == Node::Kind::null) {
    const std::size_t colon = bytes.find(':', text.at(map->key_place));
    if (colon != std::string::npos)
      tried.push_back(text.with(colon + 1, colon + 1, " {" + entry + "}"));
  }
  for (std::string& result : tried)
    if (means(result, wanted))
      return std::move(result);
  return std::nullopt;
}

}  // namespace

std::optional<std::string> with_values(const std::string& bytes,
                                       const std::vector<KeyValue>& values) {
  Result result = bytes;
  for (const KeyValue& value : values)
    if (result)
      result = with_value(*result, value);
  return result;
}

}  // namespace trireme::deck
