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

}  // namespace trireme::model
