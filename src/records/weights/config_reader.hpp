// SPDX-License-Identifier: Apache-2.0
// Reads the keys of a Hugging Face config.json and collects all errors, to throw them at once. Also
// declares the reader and writer of each family's keys that are not in the tables of family.hpp.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/error.hpp"

#include "model/config.hpp"

#include "text/json_file.hpp"

#include "weights/family.hpp"
#include "weights/safetensors.hpp"

namespace trireme::weights {

class ConfigReader {
 public:
  /// All arguments must outlive the reader; `path` is used in messages.
  ConfigReader(const std::string& path, const text::Json& root, const Family& family)
      : path_(path), root_(root), family_(family) {}

  /// Sizes and fixed keys, by the family's tables.
  void read_tables(model::GptShape& shape);
  /// Throws the collected errors, if there are any.
  void finish() { throw_findings(std::move(findings_)); }

  void say(const std::string& key, std::string text);
  /// Null where the key is missing.
  [[nodiscard]] const text::Json& value(const char* key) const { return text::member(root_, key); }
  [[nodiscard]] bool has(const char* key) const { return root_.contains(key); }
  bool flag(const char* key, bool otherwise);
  /// An integer from 1 to `most`; `otherwise` if the key is missing or null.
  std::int64_t count(const char* key, std::int64_t otherwise, std::int64_t most);
  /// The positive number `value`; `key` names it in messages.
  double positive(const text::Json& value, const std::string& key, double otherwise);

 private:
  void size(const SizeRule& rule, model::GptShape& shape);
  void fixed(const FixedRule& rule);

  const std::string& path_;
  const text::Json& root_;
  const Family& family_;
  std::vector<Diagnostic> findings_;
};

using OrderedJson = nlohmann::ordered_json;

void read_gpt2(ConfigReader& config, model::GptShape& shape);
/// Llama, Qwen3 and nanochat have nearly the same keys.
void read_llama(ConfigReader& config, model::GptShape& shape);
void read_qwen3(ConfigReader& config, model::GptShape& shape);
void read_nanochat(ConfigReader& config, model::GptShape& shape);
void write_gpt2(OrderedJson& root, const model::GptShape& shape);
void write_llama(OrderedJson& root, const model::GptShape& shape);
void write_qwen3(OrderedJson& root, const model::GptShape& shape);
void write_nanochat(OrderedJson& root, const model::GptShape& shape);

}  // namespace trireme::weights
