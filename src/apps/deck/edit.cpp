// SPDX-License-Identifier: Apache-2.0
#include "deck/edit.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/error.hpp"

#include "deck/deck.hpp"
#include "deck/references.hpp"
#include "deck/survey.hpp"
#include "deck/yaml.hpp"

namespace trireme::deck {
namespace {

using Result = std::optional<std::string>;

/// All values of a deck, and its mistakes without their places.
std::vector<std::string> content_of(const std::string& bytes,
                                    const std::vector<std::string>& overrides) {
  std::vector<Diagnostic> findings;
  const Deck deck = read(bytes, "", overrides, references_in(bytes, {}), findings);
  std::vector<std::string> content;
  for (const Entry& entry : survey(deck.config)) content.push_back(entry.text);
  for (const Diagnostic& one : findings) content.push_back(one.subject + ": " + one.text);
  return content;
}

class Text {
 public:
  explicit Text(std::string bytes) : bytes_(std::move(bytes)) {}

  /// The offset of the beginning of line `number`, from 1; that of the end if there is none.
  [[nodiscard]] std::size_t line(int number) const {
    std::size_t begin = 0;
    for (; number > 1 && begin < bytes_.size(); --number)
      begin = std::min(bytes_.find('\n', begin), bytes_.size() - 1) + 1;
    return begin;
  }
  [[nodiscard]] std::size_t at(const Place& place) const {
    return std::min(line(place.line) + static_cast<std::size_t>(place.column) - 1, bytes_.size());
  }
  /// The text without [begin, end), with `put` in its place.
  [[nodiscard]] std::string with(std::size_t begin, std::size_t end, std::string_view put) const {
    return bytes_.substr(0, begin).append(put) + bytes_.substr(end);
  }
  /// Where the value at `begin` may end: of a word, of one in quotes, of a list or map in brackets.
  [[nodiscard]] std::vector<std::size_t> ends_of(std::size_t begin, const Node& value) const {
    std::vector<std::size_t> ends{begin + value.word.size(), begin + value.word.size() + 2};
    for (const char bracket : {']', '}'}) ends.push_back(bytes_.find(bracket, begin) + 1);
    std::erase_if(ends, [&](std::size_t end) { return end < begin || end > bytes_.size(); });
    return ends;
  }
  [[nodiscard]] const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

// Candidate texts, the best first. with_value() drops those in which the layout is another one.

/// With `entry` added to a map in block style or in braces.
void add_entry(const Text& text,
               const Node& map,
               const std::string& entry,
               std::vector<std::string>& tried) {
  const std::size_t inside = text.at(map.place) + 1;
  if (map.children.empty()) {
    tried.push_back(text.with(inside, inside, entry));
    return;
  }
  const Node &first = map.children.front(), &last = map.children.back();
  const std::string line =
      std::string(static_cast<std::size_t>(first.key_place.column) - 1, ' ') + entry + "\n";
  const std::size_t after = text.line(last.place.line + 1),
                    before = text.line(first.key_place.line);
  tried.push_back(text.with(after, after, text.bytes().ends_with('\n') ? line : "\n" + line));
  for (const std::size_t end : text.ends_of(text.at(last.place), last))
    tried.push_back(text.with(end, end, ", " + entry));
  tried.push_back(text.with(before, before, line));
  tried.push_back(text.with(inside, inside, entry + ", "));
}

/// With another value of a key that has one.
void replace_value(const Text& text,
                   const Node& old,
                   const std::string& value,
                   std::vector<std::string>& tried) {
  const std::size_t begin = text.at(old.place);
  for (const std::size_t end : text.ends_of(begin, old))
    tried.push_back(text.with(begin, end, value));
  // A value in block style: remove its lines and write the new value after the key.
  const std::size_t from = text.line(old.place.line);
  const std::size_t colon = text.bytes().find(':', text.at(old.key_place));
  if (!old.children.empty() && colon < from)
    tried.push_back(Text(text.with(from, text.line(old.children.back().place.line + 1), ""))
                        .with(colon + 1, colon + 1, " " + value));
}

Result with_value(const std::string& bytes, const KeyValue& edit) {
  const std::size_t dot = edit.path.find('.');
  TRIREME_EXPECT(dot != std::string::npos && edit.path.rfind('.') == dot, "a key '{}'", edit.path);
  const std::string section = edit.path.substr(0, dot), key = edit.path.substr(dot + 1);
  const std::string entry = key + ": " + edit.value, whole = section + ": {" + entry + "}";
  std::vector<Diagnostic> findings;
  Node tree = parse_yaml(masked(bytes), {}, findings);
  if (!findings.empty() || tree.kind != Node::Kind::map)
    return std::nullopt;

  const Text text(bytes);
  std::vector<std::string> tried;
  Node* map = child_of(tree, section);
  if (map == nullptr) {
    tried.push_back(bytes + (bytes.ends_with('\n') ? "" : "\n") + whole + "\n");
    add_entry(text, tree, whole, tried);
  } else if (const Node* old = child_of(*map, key)) {
    replace_value(text, *old, edit.value, tried);
  } else {
    add_entry(text, *map, entry, tried);
    const std::size_t after_colon = bytes.find(':', text.at(map->key_place)) + 1;
    tried.push_back(text.with(after_colon, after_colon, " {" + entry + "}"));
  }
  const auto wanted = content_of(bytes, {edit.path + "=" + edit.value});
  for (std::string& result : tried)
    if (content_of(result, {}) == wanted)
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
