// SPDX-License-Identifier: Apache-2.0
#include "deck/reader.hpp"

#include <algorithm>
#include <cctype>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/text.hpp"

namespace trireme::deck {
namespace {

/// Normalizes spelling: learningRate, Learning-Rate and learning_rate are the same.
std::string folded(const std::string& name) {
  std::string result;
  for (const char c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) != 0)
      result += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

}  // namespace

Reader::Reader(const Node* node,
               std::string path,
               KeyPlaces& places,
               const std::vector<std::string>& all_keys,
               std::vector<Diagnostic>& findings)
    : path_(std::move(path)), places_(places), all_keys_(all_keys), findings_(findings) {
  if (node == nullptr || node->kind == Node::Kind::null || node->kind == Node::Kind::broken)
    return;
  if (node->kind != Node::Kind::map) {
    findings_.push_back(
        {node->place, path_, fmt::format("expected 'key: value', found {}", in_words(*node))});
    return;
  }
  map_ = node;
  std::map<std::string, const Place*> seen;
  for (const Node& child : map_->children) {
    const auto [first, fresh] = seen.try_emplace(child.key, &child.key_place);
    if (!fresh)
      findings_.push_back(
          {child.key_place, dotted(child.key),
           fmt::format("the key is given twice, first at {}:{}:{}", first->second->file,
                       first->second->line, first->second->column)});
  }
}

const Node* Reader::find(const char* name) {
  known_.emplace_back(name);
  const Node* found = nullptr;
  if (map_ != nullptr)
    for (const Node& child : map_->children)
      if (child.key == name)
        found = &child;
  return found;
}

void Reader::remember(const char* name, const Node& node, const Problem& problem) {
  places_.give(dotted(name), node.place);
  for (std::size_t i = 0; node.kind == Node::Kind::list && i < node.children.size(); ++i)
    places_.give(fmt::format("{}[{}]", dotted(name), i), node.children[i].place);
  if (problem)
    findings_.push_back({node.place, dotted(name), *problem});
  const auto broken = [](const Node& one) { return one.kind == Node::Kind::broken; };
  if (problem || broken(node) || std::ranges::any_of(node.children, broken))
    places_.spoil(dotted(name));
}

Problem Reader::not_a_list(const Node& node) {
  if (node.kind == Node::Kind::list || node.kind == Node::Kind::broken)
    return std::nullopt;
  return fmt::format("expected a list such as [{{key: value, …}}, …], found {}", in_words(node));
}

void Reader::remember_section(const char* name, const Node& node) {
  places_.give(dotted(name), node.key_place);
  if (node.kind != Node::Kind::map && node.kind != Node::Kind::null)
    places_.spoil(dotted(name));
  for (const Node& child : map_->children)
    if (child.key == name && &child != &node)
      spoil_overruled(dotted(name), child, node);
}

void Reader::spoil_overruled(const std::string& path, const Node& earlier, const Node& counting) {
  if (earlier.kind != Node::Kind::map)
    return;
  for (const Node& child : earlier.children) {
    const auto same = std::ranges::find(counting.children, child.key, &Node::key);
    if (same == counting.children.end())
      places_.spoil(path + "." + child.key);
    else
      spoil_overruled(path + "." + child.key, child, *same);
  }
}

void Reader::report_missing(const char* name) {
  const std::string path = dotted(name);
  if (places_.readable(path))
    findings_.push_back({places_.of(path), path, "the required key is missing"});
  places_.spoil(path);
}

void Reader::finish() {
  if (map_ == nullptr)
    return;
  for (const Node& child : map_->children)
    if (std::ranges::find(known_, child.key) == known_.end())
      findings_.push_back({child.key_place, dotted(child.key), "unknown key: " + hint(child.key)});
}

std::string Reader::dotted(const std::string& name) const {
  return path_.empty() ? name : path_ + "." + name;
}

std::string Reader::hint(const std::string& unknown) const {
  const std::string wanted = folded(unknown);
  for (const std::string& known : known_)
    if (folded(known) == wanted)
      return fmt::format("did you mean '{}'?", known);
  if (std::ranges::find(all_keys_, unknown) != all_keys_.end())
    return fmt::format("write '{}' inside its section", leaf(unknown));
  std::string elsewhere;
  for (const std::string& path : all_keys_)
    if (folded(leaf(path)) == wanted)
      elsewhere += fmt::format("{}'{}'", elsewhere.empty() ? "" : " or ", path);
  if (!elsewhere.empty())
    return fmt::format("did you mean {}?", elsewhere);
  const auto near = nearest(unknown, known_);
  if (near && edit_distance(*near, unknown) < std::min(near->size(), unknown.size()))
    return fmt::format("did you mean '{}'?", *near);
  return fmt::format("{}: {}", path_.empty() ? "the sections are" : "known keys are",
                     fmt::join(known_, ", "));
}

}  // namespace trireme::deck
