// SPDX-License-Identifier: Apache-2.0
#include "deck/yaml.hpp"

#include <algorithm>
#include <sstream>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <yaml-cpp/depthguard.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

namespace trireme::deck {
namespace {

/// yaml-cpp's marks count from 0, and are -1 if it does not know the place.
Place place_of(const YAML::Mark& mark, const TextOrigin& origin) {
  if (mark.line < 0)
    return {origin.file, origin.line, origin.column};
  return {origin.file, origin.line + mark.line,
          mark.line == 0 ? origin.column + mark.column : mark.column + 1};
}

class TreeBuilder final : public YAML::EventHandler {
 public:
  TreeBuilder(const TextOrigin& origin, std::vector<Diagnostic>& findings)
      : origin_(origin), findings_(findings) {}

  [[nodiscard]] Node take() { return std::move(root_); }
  [[nodiscard]] bool more_than_one() const { return documents_ > 1; }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ == 2)
      report(mark, "a second YAML document begins here, but a deck must be one document");
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t) override { add(at(mark, Node::Kind::null)); }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    report(mark, "aliases (*name) are not allowed in a deck. Write the value out.");
    add(at(mark, Node::Kind::broken));
  }
  void OnScalar(const YAML::Mark& mark,
                const std::string& tag,
                YAML::anchor_t,
                const std::string& value) override {
    // A tagged word gets no other finding.
    Node node = at(mark, check_tag(mark, tag) ? Node::Kind::word : Node::Kind::broken);
    node.word = value;
    node.quoted = tag != "?" && !tag.empty();
    add(std::move(node));
  }
  void OnSequenceStart(const YAML::Mark& mark,
                       const std::string& tag,
                       YAML::anchor_t,
                       YAML::EmitterStyle::value) override {
    check_tag(mark, tag);
    open_.push_back(at(mark, Node::Kind::list));
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark,
                  const std::string& tag,
                  YAML::anchor_t,
                  YAML::EmitterStyle::value) override {
    check_tag(mark, tag);
    open_.push_back(at(mark, Node::Kind::map));
  }
  void OnMapEnd() override { close(); }
  void OnAnchor(const YAML::Mark& mark, const std::string& name) override {
    report(mark, fmt::format("anchors (&{}) are not allowed in a deck", name));
  }

 private:
  [[nodiscard]] Node at(const YAML::Mark& mark, Node::Kind kind) const {
    Node node;
    node.kind = kind;
    node.place = place_of(mark, origin_);
    return node;
  }
  void report(const YAML::Mark& mark, std::string text) {
    if (documents_ <= 2)
      findings_.push_back({place_of(mark, origin_), "", std::move(text)});
  }
  bool check_tag(const YAML::Mark& mark, const std::string& tag) {
    if (tag.empty() || tag == "?" || tag == "!")
      return true;
    report(mark, "tags (!name) are not allowed in a deck");
    return false;
  }
  void close() {
    Node done = std::move(open_.back());
    open_.pop_back();
    if (done.kind == Node::Kind::map)
      done.children = values_of(std::move(done.children));
    add(std::move(done));
  }
  void add(Node node) {
    if (documents_ <= 1)
      (open_.empty() ? root_ : open_.back().children.emplace_back()) = std::move(node);
  }
  /// The values with their keys, of keys and values in turn.
  std::vector<Node> values_of(std::vector<Node> turns) {
    std::vector<Node> values;
    for (std::size_t i = 0; i + 1 < turns.size(); i += 2) {
      const Node& key = turns[i];
      if (key.kind == Node::Kind::word && key.word == "<<" && !key.quoted) {
        findings_.push_back({key.place, "", "merge keys (<<) are not allowed in a deck"});
      } else if (key.kind == Node::Kind::word) {
        Node& value = values.emplace_back(std::move(turns[i + 1]));
        value.key = key.word;
        value.key_place = key.place;
        if (value.kind == Node::Kind::null)
          value.place = key.place;
      } else if (key.kind != Node::Kind::broken) {
        findings_.push_back(
            {key.place, "", fmt::format("a key must be a word, not {}", in_words(key))});
      }
    }
    return values;
  }

  const TextOrigin& origin_;
  std::vector<Diagnostic>& findings_;
  int documents_ = 0;
  Node root_;
  std::vector<Node> open_;  // lists, and maps with keys and values in turn, that are not complete
};

/// Whether there is a tab in the indentation of line `line` (from 0) of `text`.
bool has_tab_indent(const std::string& text, int line) {
  std::size_t begin = 0;
  for (; line > 0 && begin != std::string::npos; --line) {
    begin = text.find('\n', begin);
    begin = begin == std::string::npos ? begin : begin + 1;
  }
  if (line > 0 || begin == std::string::npos)
    return false;
  const std::size_t end = text.find_first_not_of(" \t", begin);
  return std::min(text.find('\t', begin), text.size()) < std::min(end, text.size());
}

/// yaml-cpp's message, the same for all versions; 0.8 adds the anchor's name, which is not needed.
std::string words_of(const YAML::Exception& problem) {
  if (dynamic_cast<const YAML::DeepRecursion*>(&problem) != nullptr)
    return "lists or maps are nested hundreds of levels deep";
  constexpr std::string_view anchor = "the referenced anchor is not defined";
  return problem.msg.starts_with(anchor) ? std::string(anchor) : problem.msg;
}

}  // namespace

Node* child_of(Node& map, const std::string& key) {
  const auto found = std::find_if(map.children.rbegin(), map.children.rend(),
                                  [&](const Node& child) { return child.key == key; });
  return found == map.children.rend() ? nullptr : &*found;
}

std::string in_words(const Node& node) {
  switch (node.kind) {
    case Node::Kind::null:
      return "nothing";
    case Node::Kind::word:
      return "'" + node.word + "'";
    case Node::Kind::list:
      return "a list";
    case Node::Kind::map:
      return "a map";
    case Node::Kind::broken:
      break;
  }
  return "?";
}

Node parse_yaml(const std::string& text,
                const TextOrigin& origin,
                std::vector<Diagnostic>& findings) {
  TreeBuilder builder(origin, findings);
  try {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    while (!builder.more_than_one() && parser.HandleNextDocument(builder)) {
    }
    return builder.take();
  } catch (const YAML::Exception& problem) {
    const bool tab = problem.mark.line >= 0 && has_tab_indent(text, problem.mark.line);
    findings.push_back(
        {place_of(problem.mark, origin), "",
         fmt::format("not YAML: {}{}", words_of(problem),
                     tab ? ". This line is indented with a tab, but YAML requires spaces." : "")});
    Node broken;
    broken.kind = Node::Kind::broken;
    broken.place = findings.back().place;
    return broken;
  }
}

}  // namespace trireme::deck
