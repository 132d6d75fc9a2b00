// SPDX-License-Identifier: Apache-2.0
#include "weights/config_keys.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace trireme::weights {
namespace {

using text::Json;

/// Keys that do not change the logits of any family: about training, generation, files and other
/// heads. Source: transformers, configuration_utils.py and the families' configurations.
constexpr std::string_view without_effect[] = {
    "_attn_implementation", "_name_or_path", "architectures", "attention_dropout", "attn_pdrop",
    "chunk_size_feed_forward", "dtype", "embd_pdrop", "finetuning_task", "gradient_checkpointing",
    "id2label", "initializer_range", "label2id", "n_ctx", "name_or_path", "num_labels",
    "output_attentions", "output_hidden_states", "pretraining_tp", "problem_type",
    "reorder_and_upcast_attn", "resid_pdrop", "return_dict", "summary_activation",
    "summary_first_dropout", "summary_proj_to_labels", "summary_type", "summary_use_proj",
    "task_specific_params", "tie_last_hidden_states", "tokenizer_class", "torch_dtype",
    "transformers_version", "use_cache",
    // Generation settings, which older files contain.
    "do_sample", "max_length", "repetition_penalty", "temperature", "top_k", "top_p"};

/// Keys of every family that change what is computed or stored, and the reason for a refusal.
constexpr std::pair<const char*, const char*> refused[] = {
    {"quantization_config", "the weights are quantized. Import the weights before quantization"},
    {"compression_config", "the weights are compressed. Import the weights before compression"},
    {"per_layer_config", "all layers of a model in trireme have the same parts"},
    {"pruned_heads", "all layers of a model in trireme have the same heads"},
    {"is_encoder_decoder", "trireme has no encoder"},
    {"add_cross_attention", "trireme has no cross attention"}};

/// Whether a key with this value has no effect.
bool says_nothing(const Json& value) {
  return value.is_null() || value == false || (value.is_structured() && value.empty());
}

}  // namespace

const Json& KeyReader::value(const std::string& key) {
  asked_.insert(key);
  const auto dot = key.find('.');
  if (dot == std::string::npos)
    return text::member(root_, key);
  const Json& outer = value(key.substr(0, dot));
  return outer.is_object() ? text::member(outer, key.substr(dot + 1)) : text::member({}, key);
}

void KeyReader::say(const std::string& key, std::string text) {
  findings_.add({path_}, key, std::move(text));
}

std::string KeyReader::shown(const std::string& key) {
  return value(key).is_null() ? "missing" : text::shortened(value(key).dump());
}

void KeyReader::flag(const std::string& key, bool& to, bool usual) {
  const Json& given = value(key);
  if (!given.is_null() && !given.is_boolean())
    return say(key, "must be true or false");
  to = given.is_null() ? usual : given.get<bool>();
}

void KeyReader::count(const std::string& key,
                      std::int64_t& to,
                      std::int64_t most,
                      std::int64_t usual) {
  const Json& given = value(key);
  if (given.is_null() && usual > 0)
    to = usual;
  else if (given.is_number_unsigned() && given.get<std::uint64_t>() >= 1 &&
           given.get<std::uint64_t>() <= static_cast<std::uint64_t>(most))
    to = given.get<std::int64_t>();
  else
    say(key, fmt::format("{}; it must be an integer from 1 to {}", shown(key), most));
}

void KeyReader::positive(const std::string& key, double& to, double usual) {
  const Json& given = value(key);
  if (given.is_null() && usual > 0)
    to = usual;
  else if (given.is_number() && given.get<double>() > 0)
    to = given.get<double>();
  else
    say(key,
        given.is_null() ? "missing" : fmt::format("{}; it must be a positive number", shown(key)));
}

void KeyReader::fixed(const std::string& key,
                      std::string_view values,
                      const char* why,
                      bool required) {
  const Json& given = value(key);
  if (given.is_null() && !required)
    return;
  for (std::string_view rest = values; !rest.empty();) {
    constexpr std::string_view between = " or ";
    const auto end = std::min(rest.find(between), rest.size());
    if (given == Json::parse(rest.substr(0, end)))
      return;
    rest.remove_prefix(std::min(end + between.size(), rest.size()));
  }
  say(key, fmt::format("{}: {}; it must be {}", shown(key), why, values));
}

void KeyReader::refuse_others_in(const std::string& key, std::string_view what) {
  for (const auto& [name, inner] : value(key).items())
    if (!inner.is_null() && !asked_.contains(key + "." + name))
      say(key + "." + name, fmt::format("trireme does not know this parameter of {}", what));
}

std::vector<std::string> KeyReader::finish(std::string_view reader) {
  for (const auto& [key, why] : refused)
    if (!says_nothing(value(key)))
      say(key, fmt::format("{}: {}", shown(key), why));
  findings_.settle();
  std::vector<std::string> unknown;
  for (const auto& [key, given] : root_.items())
    if (!says_nothing(given) && !asked_.contains(key) &&
        std::ranges::find(without_effect, key) == std::end(without_effect))
      unknown.push_back(text::shortened(key));
  if (unknown.empty())
    return {};
  return {fmt::format("{}: keys that neither trireme nor {} of transformers uses: {}", path_,
                      reader, fmt::join(unknown, ", "))};
}

}  // namespace trireme::weights
