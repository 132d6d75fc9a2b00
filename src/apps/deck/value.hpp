// SPDX-License-Identifier: Apache-2.0
// Converts a deck value between YAML and C++. decode() is strict: an ambiguous word is refused with
// the reason, so 010 is an error and not 8 steps.
//
// decode() returns nothing if it set `value`, else the problem. yaml_text() is the exact inverse.
//
// 1. decode() changes `value` only if it succeeds. The problem is the end of a message; the caller
//    adds place and path.
// 2. A quoted word is always a text: "3" is not a number, and "auto" is not a keyword.
// 3. A new type of key needs both functions, and a case of type_text() in value_range.hpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/key.hpp"

#include "deck/yaml.hpp"

namespace trireme::deck {

using Problem = std::optional<std::string>;

Problem decode(const Node& node, bool& value);
Problem decode(const Node& node, std::int64_t& value);
Problem decode(const Node& node, double& value);
Problem decode(const Node& node, Duration& value);
Problem decode(const Node& node, Bytes& value);
Problem decode(const Node& node, std::string& value);
Problem decode(const Node& node, std::vector<std::string>& value);

std::string yaml_text(bool value);
std::string yaml_text(std::int64_t value);
std::string yaml_text(double value);
std::string yaml_text(Duration value);
std::string yaml_text(Bytes value);
std::string yaml_text(const std::string& value);
std::string yaml_text(const std::vector<std::string>& value);

// Traits for the types of base/key.hpp that add words to another type.
template <class T>
struct IsOr : std::false_type {};
template <class T>
struct IsOr<Or<T>> : std::true_type {};
template <class T>
struct IsNumberOr : std::false_type {};
template <class E>
struct IsNumberOr<NumberOr<E>> : std::true_type {};
template <class T>
struct IsWordsOrBytes : std::false_type {};
template <class E>
struct IsWordsOrBytes<WordsOrBytes<E>> : std::true_type {};

/// All words of an enum, in the order of its table, which messages and help use.
template <NamedEnum E>
std::vector<std::string> words_of() {
  std::vector<std::string> words;
  for (const auto& [known, text] : EnumNames<E>::table) words.emplace_back(text);
  return words;
}

template <NamedEnum E>
std::vector<std::string> words_in(const std::vector<E>& values) {
  std::vector<std::string> words;
  words.reserve(values.size());
  for (const E value : values) words.emplace_back(word(value));
  return words;
}

/// "constant | linear | cosine".
template <NamedEnum E>
std::string choices_of() {
  return fmt::format("{}", fmt::join(words_of<E>(), " | "));
}

/// "'cosin' is not one of constant, linear; did you mean …".
std::string not_one_of(const Node& node, const std::vector<std::string>& words);

/// Words must match exactly; they may be quoted.
template <NamedEnum E>
Problem decode(const Node& node, E& value) {
  const auto known = node.kind == Node::Kind::word ? value_named<E>(node.word) : std::nullopt;
  if (!known)
    return not_one_of(node, words_of<E>());
  value = *known;
  return std::nullopt;
}

/// The keyword without quotes, or a T.
template <class T>
Problem decode(const Node& node, Or<T>& value) {
  if (node.kind == Node::Kind::word && !node.quoted && node.word == value.keyword) {
    value.value.reset();
    return std::nullopt;
  }
  T inner{};
  if (Problem problem = decode(node, inner))
    return *problem + fmt::format(" (or the word {})", value.keyword);
  value.value = std::move(inner);
  return std::nullopt;
}

/// Decodes a limit from a map with the single key `key`.
Problem decode_limit(const Node& node, const char* key, Bytes& value);

/// One word for all, a list of words, or a map with the limit. Messages count list items from 1.
template <NamedEnum E>
Problem decode(const Node& node, WordsOrBytes<E>& value) {
  if (node.kind == Node::Kind::list) {
    std::vector<E> each;
    for (const Node& element : node.children) {
      if (element.kind == Node::Kind::broken)
        continue;
      if (Problem problem = decode(element, each.emplace_back()))
        return fmt::format("element {} of the list: {}", each.size(), *problem);
    }
    value.value = std::move(each);
    return std::nullopt;
  }
  if (node.kind == Node::Kind::map) {
    Bytes limit;
    if (Problem problem = decode_limit(node, value.key, limit))
      return problem;
    value.value = limit;
    return std::nullopt;
  }
  E all{};
  if (Problem problem = decode(node, all))
    return *problem + fmt::format(" (or a list of them, or {{{}: 60 GiB}})", value.key);
  value.value = all;
  return std::nullopt;
}

/// A word of the enum, or an integer.
template <NamedEnum E>
Problem decode(const Node& node, NumberOr<E>& value) {
  E keyword{};
  if (!decode(node, keyword)) {
    value = {.number = std::nullopt, .keyword = keyword};
    return std::nullopt;
  }
  std::int64_t number = 0;
  if (Problem problem = decode(node, number))
    return *problem + fmt::format(" (or {})", choices_of<E>());
  value.number = number;
  return std::nullopt;
}

template <NamedEnum E>
std::string yaml_text(E value) {
  return word(value);
}
template <NamedEnum E>
std::string yaml_text(const NumberOr<E>& value) {
  return value.number ? yaml_text(*value.number) : word(value.keyword);
}
template <NamedEnum E>
std::string yaml_text(const WordsOrBytes<E>& value) {
  if (value.limit() != nullptr)
    return fmt::format("{{{}: {}}}", value.key, yaml_text(*value.limit()));
  return value.list() != nullptr ? yaml_text(words_in(*value.list()))
                                 : yaml_text(std::get<E>(value.value));
}
/// A text that equals the keyword is quoted, so that decode() can distinguish them.
template <class T>
std::string yaml_text(const Or<T>& value) {
  if (!value.given())
    return value.keyword;
  std::string text = yaml_text(*value.value);
  return text == value.keyword ? "\"" + text + "\"" : text;
}

/// The value in the record of a run, where durations are seconds and limits are texts.
template <class T>
std::string record_text(const T& value) {
  if constexpr (IsOr<T>::value)
    return value.given() ? record_text(*value.value) : value.keyword;
  else if constexpr (std::is_same_v<T, Duration>)
    return yaml_text(value.seconds);
  else if constexpr (IsWordsOrBytes<T>::value)
    return value.limit() != nullptr ? yaml_text(yaml_text(value)) : yaml_text(value);
  else
    return yaml_text(value);
}

/// The describe() visitor that writes all keys as a map on one line, but for lists of maps.
class LineWriter {
 public:
  template <class T>
  void operator()(const char* name, const T& value, const Key<T>& /*key*/) {
    keys_ += fmt::format("{}{}: {}", keys_.empty() ? "" : ", ", name, yaml_text(value));
  }
  template <class S>
  void list(const char* /*name*/, std::vector<S>& /*items*/, const ListKey& /*key*/) {
    has_lists_ = true;
  }
  [[nodiscard]] std::string map() const { return "{" + keys_ + "}"; }
  [[nodiscard]] bool has_lists() const { return has_lists_; }

 private:
  std::string keys_;
  bool has_lists_ = false;
};

}  // namespace trireme::deck
