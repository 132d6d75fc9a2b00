// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.hpp"

#include "text/json_file.hpp"
#include "weights/family.hpp"
#include "weights/huggingface.hpp"
#include "weights/safetensors.hpp"

namespace trireme::weights {
namespace {

using text::Json;
using OrderedJson = nlohmann::ordered_json;

/// Of a model without biases, which the family of the file does not know: they are there, and zero.
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
                   fmt::format("{}: this architecture is not read; known: {}",
                               type.is_null() ? "missing" : text::shortened(type.dump()), known));
}

class ConfigReader {
 public:
  ConfigReader(const std::string& path, const Json& root, const Family& family)
      : path_(path), root_(root), family_(family) {}

  model::GptShape read() {
    model::GptShape shape;
    for (const SizeRule& rule : family_.sizes) size(rule, shape);
    for (const FixedRule& rule : family_.fixed) fixed(rule);
    if (shape.heads > 0 && shape.channels % shape.heads != 0)
      say("n_head", fmt::format("{} heads do not divide {} channels", shape.heads, shape.channels));
    const Json& inner = text::member(root_, "n_inner");
    if (shape.channels > 0 && !inner.is_null() && inner != shape.mlp_channels())
      say("n_inner", fmt::format("{}: the MLP here has 4 x {} channels inside",
                                 text::shortened(inner.dump()), shape.channels));
    shape.tied_head = flag("tie_word_embeddings", true);
    shape.bias = flag(no_bias_key, true);
    throw_findings(std::move(findings_));
    return shape;
  }

 private:
  void say(const char* key, std::string text) {
    findings_.push_back({{path_}, key, std::move(text)});
  }

  void size(const SizeRule& rule, model::GptShape& shape) {
    const Json& value = text::member(root_, rule.key);
    if (value.is_number_unsigned() && value.get<std::uint64_t>() >= 1 &&
        value.get<std::uint64_t>() <= static_cast<std::uint64_t>(rule.most))
      shape.*rule.size = value.get<std::int64_t>();
    else
      say(rule.key,
          fmt::format("{}; it must be an integer from 1 to {}",
                      value.is_null() ? "missing" : text::shortened(value.dump()), rule.most));
  }

  void fixed(const FixedRule& rule) {
    const Json& value = text::member(root_, rule.key);
    if (value.is_null() && !rule.required)
      return;
    std::string_view rest = rule.values;
    constexpr std::string_view between = " or ";
    while (!rest.empty()) {
      const auto end = std::min(rest.find(between), rest.size());
      if (value == Json::parse(rest.substr(0, end)))
        return;
      rest.remove_prefix(std::min(end + between.size(), rest.size()));
    }
    say(rule.key, fmt::format("{}: {}; it must be {}",
                              value.is_null() ? "missing" : text::shortened(value.dump()),
                              rule.otherwise, rule.values));
  }

  bool flag(const char* key, bool otherwise) {
    const Json& value = text::member(root_, key);
    if (!value.is_null() && !value.is_boolean())
      say(key, "neither true nor false");
    return value.is_boolean() ? value.get<bool>() : otherwise;
  }

  const std::string& path_;
  const Json& root_;
  const Family& family_;
  std::vector<Diagnostic> findings_;
};

OrderedJson id_or_null(std::int64_t id) {
  return id < 0 ? OrderedJson(nullptr) : OrderedJson(id);
}

}  // namespace

model::GptShape shape_of_config(const std::string& path, const std::string& bytes) {
  const Json root = text::parse_json(path, bytes);
  if (!root.is_object())
    throw UserError({path}, "this is no JSON object {...}");
  return ConfigReader(path, root, family_named(path, root)).read();
}

std::string config_json(const model::GptShape& shape, const ConfigFacts& facts) {
  const Family& family = family_of(shape);
  OrderedJson root = {{"architectures", OrderedJson::array({family.architecture})},
                      {"model_type", family.model_type}};
  for (const SizeRule& rule : family.sizes) root[rule.key] = shape.*rule.size;
  root["n_ctx"] = shape.context;
  root["n_inner"] = nullptr;
  for (const FixedRule& rule : family.fixed)
    root[rule.key] = OrderedJson::parse(rule.values.substr(0, rule.values.find(" or ")));
  for (const char* key : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) root[key] = facts.dropout;
  root["tie_word_embeddings"] = shape.tied_head;
  root["bos_token_id"] = id_or_null(facts.end_of_text);
  root["eos_token_id"] = id_or_null(facts.end_of_text);
  root["use_cache"] = true;
  root["torch_dtype"] = facts.dtype;
  if (!shape.bias)
    root[no_bias_key] = false;
  return root.dump(2) + "\n";
}

std::string generation_config_json(const ConfigFacts& facts) {
  const OrderedJson root = {{"_from_model_config", true},
                            {"bos_token_id", id_or_null(facts.end_of_text)},
                            {"eos_token_id", id_or_null(facts.end_of_text)}};
  return root.dump(2) + "\n";
}

}  // namespace trireme::weights
