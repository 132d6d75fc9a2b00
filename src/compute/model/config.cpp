// SPDX-License-Identifier: Apache-2.0
#include "model/config.hpp"

namespace trireme::model {
namespace {

RotaryScaling scaling_of(const RotaryScalingConfig& config, const PresetSizes& preset) {
  const RotaryScaling known{.factor = preset.rotary_factor};
  const RotaryScaling all{
      .factor = config.factor.value_or(known.factor),
      .low_freq_factor = config.low_freq_factor.value_or(known.low_freq_factor),
      .high_freq_factor = config.high_freq_factor.value_or(known.high_freq_factor),
      .original_context = config.original_context.value_or(known.original_context)};
  return all.active() ? all : RotaryScaling{};
}

}  // namespace

GptShape resolve(const ModelConfig& config) {
  const PresetSizes preset = sizes_of(config.preset);
  const FamilyParts parts = parts_of(config.family.value_or(preset.family));
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
                 .recompute = RecomputeOfBlocks(config.recompute)};
  shape.norm = config.norm.value_or(parts.norm);
  shape.norm_gain = config.norm_gain.value_or(parts.norm_gain);
  shape.norm_epsilon = config.norm_epsilon.value_or(parts.norm_epsilon);
  shape.embedding_norm = config.embedding_norm.value_or(parts.embedding_norm);
  shape.qk_norm = config.qk_norm.value_or(parts.qk_norm);
  shape.activation = config.activation.value_or(parts.activation);
  shape.positions = config.positions.value_or(parts.positions);
  if (shape.positions == Positions::rotary) {
    shape.rotary_theta = config.rotary_theta.value_or(parts.rotary_theta);
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

ModelConfig config_of(const GptShape& shape) {
  ModelConfig config{.layers = shape.layers,
                     .heads = shape.heads,
                     .channels = shape.channels,
                     .context = shape.context,
                     .vocabulary = shape.vocabulary};
  const GptShape gpt2;
  const auto give = [](auto& key, const auto& value, const auto& usual) {
    if (value != usual)
      key.value = value;
  };
  give(config.key_value_heads, shape.grouped_heads, gpt2.grouped_heads);
  give(config.head_channels, shape.head_width, gpt2.head_width);
  give(config.norm, shape.norm, gpt2.norm);
  give(config.norm_gain, shape.norm_gain, gpt2.norm_gain);
  give(config.norm_epsilon, shape.norm_epsilon, gpt2.norm_epsilon);
  give(config.embedding_norm, shape.embedding_norm, gpt2.embedding_norm);
  give(config.qk_norm, shape.qk_norm, gpt2.qk_norm);
  give(config.activation, shape.activation, gpt2.activation);
  give(config.mlp_channels, shape.hidden, gpt2.hidden);
  give(config.positions, shape.positions, gpt2.positions);
  give(config.rotary_theta, shape.rotary_theta, gpt2.rotary_theta);
  give(config.rotary_scaling.factor, shape.rotary_scaling.factor, gpt2.rotary_scaling.factor);
  give(config.rotary_scaling.low_freq_factor, shape.rotary_scaling.low_freq_factor,
       gpt2.rotary_scaling.low_freq_factor);
  give(config.rotary_scaling.high_freq_factor, shape.rotary_scaling.high_freq_factor,
       gpt2.rotary_scaling.high_freq_factor);
  give(config.rotary_scaling.original_context, shape.rotary_scaling.original_context,
       gpt2.rotary_scaling.original_context);
  config.bias.value = shape.bias;
  config.tied_head.value = shape.tied_head;
  give(config.attention_window, shape.attention_window, gpt2.attention_window);
  if (shape.long_layers.any())
    config.window_pattern.value = pattern_of(shape.long_layers, shape.layers);
  give(config.logit_softcap, shape.logit_softcap, gpt2.logit_softcap);
  return config;
}

}  // namespace trireme::model
