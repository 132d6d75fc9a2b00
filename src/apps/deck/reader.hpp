// SPDX-License-Identifier: Apache-2.0
// The describe() visitor that fills a config struct from a YAML tree, one Reader per section. It
// collects findings, never throws, and keeps the default of a key whose value it refuses.
//
// 1. Absent sections are visited as well, to report missing required keys.
// 2. If a key is given twice, the last value is used; the repetition is a finding.
// 3. The place of every given key is stored in `places`, for cross-checks (check.cpp) and the echo.
//    A key whose value was refused is marked there, so that cross-checks skip it.
// 4. Calls come in the order of describe(); finish() reports every key that no call named.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/key.hpp"

#include "deck/deck.hpp"
#include "deck/value_range.hpp"
#include "deck/yaml.hpp"

namespace trireme::deck {

class Reader {
 public:
  /// `node`: the section's map, null if absent. `all_keys`: the paths of the whole deck, for hints.
  Reader(const Node* node,
         std::string path,
         KeyPlaces& places,
         const std::vector<std::string>& all_keys,
         std::vector<Diagnostic>& findings);

  /// Decodes (value.hpp) and checks the range (value_range.hpp); `value` changes only if both
  /// succeed. For a broken node the YAML parser has already added a finding.
  template <class T>
  void operator()(const char* name, T& value, const Key<T>& key) {
    const Node* node = find(name);
    if (node == nullptr) {
      if (key.required)
        report_missing(name);
      return;
    }
    T fresh = value;
    Problem problem;
    if (node->kind != Node::Kind::broken) {
      problem = decode(*node, fresh);
      if (!problem)
        problem = range_problem(fresh, key);
      if (!problem)
        value = std::move(fresh);
    }
    remember(name, *node, problem);
  }

  /// A map with its own describe(); if it is absent, its keys keep their defaults.
  template <class S>
  void section(const char* name, S& config) {
    const Node* node = find(name);
    if (node != nullptr)
      remember_section(name, *node);
    Reader inner(node, dotted(name), places_, all_keys_, findings_);
    describe(inner, config);
    inner.finish();
  }

  /// A list of maps, each with its own describe(). A given list replaces the default, even if it is
  /// empty. The paths of its elements are name[0], name[1], …
  template <class S>
  void list(const char* name, std::vector<S>& items, const ListKey& /*key*/) {
    const Node* node = find(name);
    if (node == nullptr)
      return;
    remember(name, *node, not_a_list(*node));
    if (node->kind != Node::Kind::list)
      return;
    items.clear();
    for (const Node& child : node->children) {
      const std::string path = fmt::format("{}[{}]", dotted(name), items.size());
      Reader inner(&child, path, places_, all_keys_, findings_);
      S& item = items.emplace_back();
      if (child.kind != Node::Kind::map && child.kind != Node::Kind::null) {
        places_.spoil(path);
        continue;
      }
      describe(inner, item);
      inner.finish();
    }
  }

  /// Call once, after describe(): reports unknown keys.
  void finish();

 private:
  /// The last child called `name`; duplicates are reported.
  const Node* find(const char* name);
  void remember(const char* name, const Node& node, const Problem& problem);
  void remember_section(const char* name, const Node& node);
  static Problem not_a_list(const Node& node);
  /// Keys that only an earlier duplicate of a section gives are not reported as missing.
  void spoil_overruled(const std::string& path, const Node& earlier, const Node& counting);
  void report_missing(const char* name);
  [[nodiscard]] std::string dotted(const std::string& name) const;
  [[nodiscard]] std::string hint(const std::string& unknown) const;

  const Node* map_ = nullptr;
  std::string path_;
  KeyPlaces& places_;
  const std::vector<std::string>& all_keys_;
  std::vector<Diagnostic>& findings_;
  std::vector<std::string> known_;
};

}  // namespace trireme::deck
