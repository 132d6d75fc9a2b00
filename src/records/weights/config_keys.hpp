// SPDX-License-Identifier: Apache-2.0
// Reads and writes the keys of a Hugging Face config.json with one description of them: a function
// template that is called with a KeyReader or a KeyWriter, and passes the variable for each key.
//
// 1. A reader changes a variable only if its key is valid. It collects all errors, and throws them
//    at once.
// 2. A reader knows which keys were asked for. It refuses others that change what is computed in
//    every family, and reports the rest, except those that are known to change nothing.
#pragma once

#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.hpp"

#include "text/json_file.hpp"

namespace trireme::weights {

using OrderedJson = nlohmann::ordered_json;

/// Values of a variable and their spellings; the first spelling of a value is written.
template <class E>
using Spellings = std::span<const std::pair<const char*, E>>;

class KeyReader {
 public:
  static constexpr bool reads = true;
  /// Both arguments must outlive the reader; `path` is used in messages.
  KeyReader(const std::string& path, const text::Json& root) : path_(path), root_(root) {}

  /// An integer from 1 to `most`. Without a default (0) the key must be present.
  void count(const std::string& key, std::int64_t& to, std::int64_t most, std::int64_t usual = 0);
  void positive(const std::string& key, double& to, double usual);
  void flag(const std::string& key, bool& to, bool usual);
  /// The key must have one of these values ("a or b", as JSON), because of `why`.
  void fixed(const std::string& key,
             std::string_view values,
             const char* why,
             bool required = false);
  template <class E>
  void word(const std::string& key, E& to, Spellings<E> spellings, const char* why) {
    std::string values;
    for (const auto& [spelling, meaning] : spellings) {
      if (value(key) == spelling)
        to = meaning;
      values += (values.empty() ? "\"" : " or \"") + std::string(spelling) + "\"";
    }
    fixed(key, values, why, true);
  }

  void say(const std::string& key, std::string text);
  /// The key's value, or null if the key is missing. "a.b" is key b of the object a.
  const text::Json& value(const std::string& key);
  /// The key's value as text for a message.
  [[nodiscard]] std::string shown(const std::string& key);
  [[nodiscard]] bool has(const std::string& key) const { return root_.contains(key); }
  /// Reports keys of the object `key`, other than those read, that have a value.
  void refuse_others_in(const std::string& key, std::string_view what);
  /// Throws the errors, if there are any. Returns notes about keys that have no effect; `reader`
  /// names the class of transformers that ignores them as well.
  std::vector<std::string> finish(std::string_view reader);

 private:
  const std::string& path_;
  const text::Json& root_;
  std::set<std::string> asked_;
  Findings findings_;
};

class KeyWriter {
 public:
  static constexpr bool reads = false;
  explicit KeyWriter(OrderedJson& root) : root_(root) {}

  void count(const char* key, std::int64_t value, std::int64_t /*most*/, std::int64_t = 0) {
    root_[key] = value;
  }
  void positive(const char* key, double value, double /*usual*/) { root_[key] = value; }
  void flag(const char* key, bool value, bool /*usual*/) { root_[key] = value; }
  void fixed(const char* key, std::string_view values, const char* /*why*/, bool = false) {
    root_[key] = OrderedJson::parse(values.substr(0, values.find(" or ")));
  }
  template <class E>
  void word(const char* key, E value, Spellings<E> spellings, const char* /*why*/) {
    for (auto spelling = spellings.rbegin(); spelling != spellings.rend(); ++spelling)
      if (spelling->second == value)
        root_[key] = spelling->first;
  }
  OrderedJson& value(const char* key) { return root_[key]; }

 private:
  OrderedJson& root_;
};

}  // namespace trireme::weights
