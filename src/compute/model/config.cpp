// SPDX-License-Identifier: Apache-2.0
#include "model/config.hpp"

#include <cmath>

#include <fmt/format.h>

namespace trireme::model {
namespace {

RotaryScaling scaling_of(const RotaryScalingConfig& config, const PresetSizes& preset) {
  RotaryScaling s{.factor = config.factor.value_or(preset.rotary_factor),
                  .type = config.type.value_or(ops::RotaryScalingType::llama3)};
  if (!s.active())
    return {};
  if (s.type != ops::RotaryScalingType::linear)
    s.original_context = config.original_context.value_or(s.original_context);
  if (s.type == ops::RotaryScalingType::llama3) {
    s.low_freq_factor = config.low_freq_factor.value_or(s.low_freq_factor);
    s.high_freq_factor = config.high_freq_factor.value_or(s.high_freq_factor);
  }
  if (s.type == ops::RotaryScalingType::yarn) {
    s.beta_slow = config.beta_slow.value_or(s.beta_slow);
    s.beta_fast = config.beta_fast.value_or(s.beta_fast);
    s.attention_factor = config.attention_factor.value_or(yarn_attention_factor(s.factor));
  }
  return s;
}

template <class T>
std::string text_of(const T& value) {
  if constexpr (NamedEnum<T>)
    return word(value);
  else
    return fmt::format("{}", value);  // of a double: the same bits come back
}

}  // namespace

double yarn_attention_factor(double factor) {
  return 1 + 0.1 * std::log(factor);
}

GptShape resolve(const ModelConfig& config) {
  const PresetSizes preset = sizes_of(config.preset);
  const GptShape parts = parts_of(config.family.value_or(preset.family));
  const auto pick = [](std::int64_t given, std::int64_t otherwise) {
    return given != 0 ? given : otherwise;
  };
  GptShape shape{.layers = pick(config.layers, preset.layers),
                 .heads = pick(config.heads, preset.heads),
                 .channels = pick(config.channels, preset.channels),
                 .context = pick(config.context, preset.context),
                 .vocabulary = pick(config.vocabulary, preset.vocabulary),
                 .bias = config.bias.value_or(parts.bias),
                 .dropout = config.dropout,
                 .tied_head = config.tied_head.value_or(preset.tied_head.value_or(parts.tied_head)),
                 .recompute = config.recompute};
  shape.qkv_bias = !shape.bias && config.qkv_bias.value_or(parts.qkv_bias);
  shape.norm = config.norm.value_or(parts.norm);
  shape.norm_gain = config.norm_gain.value_or(parts.norm_gain);
  shape.norm_epsilon = config.norm_epsilon.value_or(parts.norm_epsilon);
  shape.embedding_norm = config.embedding_norm.value_or(parts.embedding_norm);
  shape.qk_norm = config.qk_norm.value_or(parts.qk_norm);
  shape.activation = config.activation.value_or(parts.activation);
  shape.positions = config.positions.value_or(parts.positions);
  if (shape.positions == Positions::rotary) {
    shape.rotary_theta =
        config.rotary_theta.value_or(parts.rotary_theta > 0 ? parts.rotary_theta : 10000);
    shape.rotary_scaling = scaling_of(config.rotary_scaling, preset);
  }
  shape.output_init = config.output_init.value_or(parts.output_init);
  shape.set_attention_window(config.attention_window.value_or(0),
                             long_layers(config.window_pattern.value_or(""), shape.layers));
  shape.logit_softcap = config.logit_softcap.value_or(parts.logit_softcap);
  shape.z_loss = config.z_loss;
  shape.loss_rows = config.loss_rows;
  shape.set_key_value_heads(
      config.key_value_heads.value_or(pick(preset.key_value_heads, shape.heads)));
  shape.set_head_channels(config.head_channels.value_or(preset.head_channels));
  shape.set_mlp_channels(
      config.mlp_channels.value_or(pick(preset.mlp_channels, shape.default_mlp_channels())));
  return shape;
}

std::vector<std::pair<std::string, std::string>> key_values(const GptShape& shape) {
  std::vector<std::pair<std::string, std::string>> all;
  const auto add = [&](const char* key, const auto& value) {
    all.emplace_back(key, text_of(value));
  };
  add("layers", shape.layers);
  add("heads", shape.heads);
  add("channels", shape.channels);
  add("context", shape.context);
  add("vocabulary", shape.vocabulary);
  add("key_value_heads", shape.key_value_heads());
  add("head_channels", shape.heads > 0 ? shape.head_channels() : 0);
  add("norm", shape.norm);
  add("norm_gain", shape.norm_gain);
  add("norm_epsilon", shape.norm_epsilon);
  add("embedding_norm", shape.embedding_norm);
  add("qk_norm", shape.qk_norm);
  add("activation", shape.activation);
  add("mlp_channels", shape.mlp_channels());
  add("positions", shape.positions);
  add("rotary_theta", shape.rotary_theta);
  const RotaryScaling& s = shape.rotary_scaling;
  add("rotary_scaling.type", s.type);
  add("rotary_scaling.factor", s.factor);
  add("rotary_scaling.low_freq_factor", s.low_freq_factor);
  add("rotary_scaling.high_freq_factor", s.high_freq_factor);
  add("rotary_scaling.original_context", s.original_context);
  add("rotary_scaling.beta_slow", s.beta_slow);
  add("rotary_scaling.beta_fast", s.beta_fast);
  add("rotary_scaling.attention_factor", s.attention_factor);
  add("bias", shape.bias);
  add("qkv_bias", shape.qkv_bias);
  add("tied_head", shape.tied_head);
  add("output_init", shape.output_init);
  add("attention_window",
      shape.attention_window > 0 ? text_of(shape.attention_window) : std::string("none"));
  add("window_pattern",
      shape.long_layers.any() ? pattern_of(shape.long_layers, shape.layers) : std::string("none"));
  add("logit_softcap", shape.logit_softcap);
  return all;
}

LongLayers long_layers(std::string_view pattern, std::int64_t layers) {
  LongLayers found;
  const auto count = static_cast<std::size_t>(layers);
  if (pattern.empty() || pattern.size() > count || layers > most_layers)
    return found;
  for (std::size_t l = 0; l < count; ++l)
    found[l] = pattern[l % pattern.size()] == 'L' || (l + 1 == count && pattern.size() < count);
  return found;
}

std::string pattern_of(const LongLayers& long_layers, std::int64_t layers) {
  std::string pattern;
  for (std::int64_t l = 0; l < layers; ++l)
    pattern += long_layers[static_cast<std::size_t>(l)] ? 'L' : 'S';
  return pattern;
}

}  // namespace trireme::model
