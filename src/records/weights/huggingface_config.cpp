// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "base/error.hpp"

#include "text/json_file.hpp"

#include "weights/config_reader.hpp"
#include "weights/family.hpp"
#include "weights/huggingface.hpp"
#include "weights/safetensors.hpp"

namespace trireme::weights {
namespace {

using text::Json;

/// Marks a model without biases in a family whose files always contain them, as zeros.
constexpr const char* no_bias_key = "trireme_bias";

const Family& family_named(const std::string& path, const Json& root) {
  const Json& type = text::member(root, "model_type");
  std::string known;
  for (const Family& family : families()) {
    if (type == family.model_type)
      return family;
    known += (known.empty() ? "" : ", ") + std::string(family.model_type);
  }
  text::refuse_key(path, "model_type",
                   fmt::format("{}: this architecture is not supported. Supported: {}",
                               type.is_null() ? "missing" : text::shortened(type.dump()), known));
}

/// Reads the keys that are not in the tables.
struct Format {
  void (*read)(ConfigReader&, model::GptShape&);
  void (*write)(OrderedJson&, const model::GptShape&);
};
Format format_of(const Family& family) {
  switch (family.kind) {
    case model::Family::gpt2:
      return {read_gpt2, write_gpt2};
    case model::Family::llama:
      return {read_llama, write_llama};
    case model::Family::qwen3:
      return {read_qwen3, write_qwen3};
    case model::Family::nanochat:
      return {read_nanochat, write_nanochat};
  }
  TRIREME_EXPECT(false, "no reader for config.json of {}", family.model_type);
  return {};
}

OrderedJson id_or_null(std::int64_t id) {
  return id < 0 ? OrderedJson(nullptr) : OrderedJson(id);
}

/// One id, or a list of several.
OrderedJson ids_or_null(const std::vector<std::int32_t>& ids) {
  return ids.size() > 1 ? OrderedJson(ids) : id_or_null(ids.empty() ? -1 : ids.front());
}

}  // namespace

model::GptShape shape_of_config(const std::string& path, const std::string& bytes) {
  const Json root = text::parse_json(path, bytes);
  if (!root.is_object())
    throw UserError({path}, "expected a JSON object {...}");
  const Family& family = family_named(path, root);
  ConfigReader config(path, root, family);
  model::GptShape shape;
  config.read_tables(shape);
  format_of(family).read(config, shape);
  if (family.always_biased)
    shape.bias = config.flag(no_bias_key, true);
  config.finish();
  return shape;
}

std::string config_json(const model::GptShape& shape, const ConfigFacts& facts) {
  const Family& family = family_of(shape);
  OrderedJson root = {{"architectures", OrderedJson::array({family.architecture})},
                      {"model_type", family.model_type}};
  for (const SizeRule& rule : family.sizes) root[rule.key] = shape.*rule.size;
  format_of(family).write(root, shape);
  for (const FixedRule& rule : family.fixed)
    root[rule.key] = OrderedJson::parse(rule.values.substr(0, rule.values.find(" or ")));
  for (const char* key : family.dropout_keys) root[key] = facts.dropout;
  root["tie_word_embeddings"] = shape.tied_head;
  root["bos_token_id"] = id_or_null(facts.end_of_text);
  root["eos_token_id"] = ids_or_null(facts.ends_of_text);
  root["use_cache"] = true;
  root["torch_dtype"] = facts.dtype;
  if (!shape.bias && family.always_biased)
    root[no_bias_key] = false;
  return root.dump(2) + "\n";
}

std::string generation_config_json(const ConfigFacts& facts) {
  const OrderedJson root = {{"_from_model_config", true},
                            {"bos_token_id", id_or_null(facts.end_of_text)},
                            {"eos_token_id", ids_or_null(facts.ends_of_text)}};
  return root.dump(2) + "\n";
}

}  // namespace trireme::weights
