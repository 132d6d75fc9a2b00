// SPDX-License-Identifier: Apache-2.0
// Keys of the config.json of Llama, Qwen3 and nanochat that are not in the tables of family.hpp.
// Rotary positions have two spellings: `rope_theta` and `rope_scaling`, or from transformers 5 on
// `rope_parameters` with both. Both are read; the first is written, because every version reads it.
#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "weights/config_reader.hpp"

namespace trireme::weights {
namespace {

using model::RotaryScaling;
using text::Json;

constexpr double default_theta = 10000;  // in transformers, for all three families

/// Reads `given`, an object with rope_type; nothing if trireme does not support the type.
std::optional<RotaryScaling> scaling_of(ConfigReader& config,
                                        const Json& given,
                                        const std::string& key) {
  if (!given.is_object()) {
    config.say(key, "expected an object {\"rope_type\": ...}");
    return std::nullopt;
  }
  const Json& spelled = text::member(given, "rope_type");
  const Json& type = spelled.is_null() ? text::member(given, "type") : spelled;
  if (type.is_null() || type == "default")
    return RotaryScaling{};
  if (type != "llama3") {
    config.say(key + ".rope_type",
               fmt::format("{}: trireme scales rotary positions as Llama 3.1 does, or not at all; "
                           "the value must be \"llama3\" or \"default\"",
                           text::shortened(type.dump())));
    return std::nullopt;
  }
  RotaryScaling scaling;
  const auto number = [&](const char* name, double otherwise) {
    const Json& value = text::member(given, name);
    const std::string full = key + "." + name;
    if (value.is_null())
      config.say(full, "missing");
    return config.positive(value, full, otherwise);
  };
  scaling.factor = number("factor", 1);
  scaling.low_freq_factor = number("low_freq_factor", scaling.low_freq_factor);
  scaling.high_freq_factor = number("high_freq_factor", scaling.high_freq_factor);
  scaling.original_context = static_cast<std::int64_t>(
      number("original_max_position_embeddings", static_cast<double>(scaling.original_context)));
  if (scaling.high_freq_factor <= scaling.low_freq_factor)
    config.say(key + ".high_freq_factor",
               fmt::format("{} is not above low_freq_factor = {}", scaling.high_freq_factor,
                           scaling.low_freq_factor));
  return scaling.active() ? scaling : RotaryScaling{};
}

void read_rotary(ConfigReader& config, model::GptShape& shape) {
  shape.positions = model::Positions::rotary;
  shape.rotary_theta = config.positive(config.value("rope_theta"), "rope_theta", default_theta);
  const Json& old = config.value("rope_scaling");
  const Json& both = config.value("rope_parameters");
  std::optional<RotaryScaling> scaling = RotaryScaling{};
  if (!old.is_null())
    scaling = scaling_of(config, old, "rope_scaling");
  if (!both.is_null()) {
    const auto other = scaling_of(config, both, "rope_parameters");
    if (!old.is_null() && scaling && other && *scaling != *other)
      config.say("rope_parameters", "differs from rope_scaling");
    scaling = other;
    if (both.is_object())
      shape.rotary_theta = config.positive(text::member(both, "rope_theta"),
                                           "rope_parameters.rope_theta", shape.rotary_theta);
  }
  shape.rotary_scaling = scaling.value_or(RotaryScaling{});
}

/// Keys of all three families.
void read_common(ConfigReader& config, model::GptShape& shape, model::Family family) {
  const model::FamilyParts parts = model::parts_of(family);
  shape.norm = parts.norm;
  shape.norm_gain = parts.norm_gain;
  shape.embedding_norm = parts.embedding_norm;
  shape.qk_norm = parts.qk_norm;
  shape.activation = parts.activation;
  shape.bias = parts.bias;
  shape.norm_epsilon = config.positive(config.value("rms_norm_eps"), "rms_norm_eps", 1e-6);
  read_rotary(config, shape);
  shape.set_mlp_channels(config.count("intermediate_size", 0, 1 << 20));
  if (shape.heads > 0) {
    const std::int64_t groups = config.count("num_key_value_heads", shape.heads, 1024);
    if (shape.heads % groups != 0)
      config.say("num_key_value_heads",
                 fmt::format("{} does not divide {} heads", groups, shape.heads));
    else
      shape.set_key_value_heads(groups);
  }
  if (shape.heads > 0 && (shape.head_width != 0 || shape.channels % shape.heads == 0) &&
      shape.head_channels() % 2 != 0)
    config.say(shape.head_width != 0 ? "head_dim" : "num_attention_heads",
               fmt::format("rotary positions need an even number of channels per head, not {}",
                           shape.head_channels()));
  shape.tied_head = config.flag("tie_word_embeddings", false);
}

void write_common(OrderedJson& root, const model::GptShape& shape) {
  root["intermediate_size"] = shape.mlp_channels();
  root["num_key_value_heads"] = shape.key_value_heads();
  root["head_dim"] = shape.head_channels();
  root["rms_norm_eps"] = shape.norm_epsilon;
  root["rope_theta"] = shape.rotary_theta;
  const RotaryScaling& s = shape.rotary_scaling;
  root["rope_scaling"] = nullptr;
  if (s.active())
    root["rope_scaling"] = {{"rope_type", "llama3"},
                            {"factor", s.factor},
                            {"low_freq_factor", s.low_freq_factor},
                            {"high_freq_factor", s.high_freq_factor},
                            {"original_max_position_embeddings", s.original_context}};
}

constexpr const char *whole = "full_attention", *sliding = "sliding_attention";

/// Qwen3: without layer_types, the layers from max_window_layers on have the window. Source:
/// transformers, models/qwen3/configuration_qwen3.py.
void read_windows(ConfigReader& config, model::GptShape& shape) {
  model::LongLayers without;
  const Json& types = config.value("layer_types");
  const bool slides = config.flag("use_sliding_window", false);
  const bool null = config.has("sliding_window") && config.value("sliding_window").is_null();
  const std::int64_t window = slides && !null ? config.count("sliding_window", 4096, 1 << 20) : 0;
  if (types.is_null()) {
    const Json& first = config.value("max_window_layers");
    const bool zero = first.is_number_unsigned() && first.get<std::uint64_t>() == 0;
    const std::int64_t full = zero ? 0 : config.count("max_window_layers", 28, 1 << 20);
    for (std::int64_t l = 0; l < std::min(shape.layers, full); ++l)
      without.set(static_cast<std::size_t>(l));
  } else if (!types.is_array() || std::ssize(types) != shape.layers) {
    config.say("layer_types", fmt::format("expected a list of {} layers", shape.layers));
  }
  for (std::size_t l = 0; types.is_array() && l < types.size() && l < without.size(); ++l) {
    if (types[l] != whole && (types[l] != sliding || window == 0))
      return config.say("layer_types",
                        fmt::format("{}: a layer must be {}", text::shortened(types[l].dump()),
                                    window == 0 ? "\"full_attention\", because use_sliding_window "
                                                  "and sliding_window define no window"
                                                : "\"full_attention\" or \"sliding_attention\""));
    without[l] = types[l] == whole;
  }
  shape.set_attention_window(window, without);
}

void write_windows(OrderedJson& root, const model::GptShape& shape) {
  const bool slides = shape.attention_window > 0;
  root["use_sliding_window"] = slides;
  root["sliding_window"] = slides ? OrderedJson(shape.attention_window) : OrderedJson(nullptr);
  root["max_window_layers"] =
      slides ? shape.long_layers.count() : static_cast<std::size_t>(shape.layers);
  root["layer_types"] = OrderedJson::array();
  for (std::int64_t l = 0; l < shape.layers; ++l)
    root["layer_types"].push_back(shape.window_of(l) > 0 ? sliding : whole);
}

constexpr const char* soft_cap_key = "final_logit_softcapping";

}  // namespace

void read_llama(ConfigReader& config, model::GptShape& shape) {
  read_common(config, shape, model::Family::llama);
  shape.bias = config.flag("attention_bias", false);
  if (config.flag("mlp_bias", false) != shape.bias)
    config.say("mlp_bias",
               fmt::format(
                   "{}, but attention_bias is {}: in trireme all linear layers have biases or none",
                   !shape.bias, shape.bias));
}

void read_qwen3(ConfigReader& config, model::GptShape& shape) {
  read_common(config, shape, model::Family::qwen3);
  read_windows(config, shape);
}

void read_nanochat(ConfigReader& config, model::GptShape& shape) {
  read_common(config, shape, model::Family::nanochat);
  // The default in transformers is that of the family; null: logits are not capped.
  const Json& cap = config.value(soft_cap_key);
  const double usual = model::parts_of(model::Family::nanochat).logit_softcap;
  shape.logit_softcap =
      config.has(soft_cap_key) && cap.is_null() ? 0 : config.positive(cap, soft_cap_key, usual);
}

void write_llama(OrderedJson& root, const model::GptShape& shape) {
  write_common(root, shape);
  root["attention_bias"] = shape.bias;
  root["mlp_bias"] = shape.bias;
}

void write_qwen3(OrderedJson& root, const model::GptShape& shape) {
  write_common(root, shape);
  write_windows(root, shape);
}

void write_nanochat(OrderedJson& root, const model::GptShape& shape) {
  write_common(root, shape);
  root[soft_cap_key] = nullptr;
  if (shape.logit_softcap > 0)
    root[soft_cap_key] = shape.logit_softcap;
  root["pad_token_id"] = nullptr;  // with the default of 1, transformers would not train token 1
}

}  // namespace trireme::weights
