// SPDX-License-Identifier: Apache-2.0
#include "model/config.hpp"

namespace trireme::model {
namespace {

struct Sizes {
  std::int64_t layers = 0, heads = 0, channels = 0, context = 0, vocabulary = 0;
  std::int64_t key_value_heads = 0, mlp_channels = 0;
};

/// GPT-2's: Radford et al. 2019, table 2, with the heads of the published checkpoints (64 channels
/// each) and the vocabulary of 50257 rounded up to a multiple of 128. Llama 3.2's: config.json of
/// the published checkpoint.
Sizes sizes_of(Preset preset) {
  switch (preset) {
    case Preset::none:
      return {};
    case Preset::gpt2_124m:
      return {12, 12, 768, 1024, 50304};
    case Preset::gpt2_350m:
      return {24, 16, 1024, 1024, 50304};
    case Preset::gpt2_774m:
      return {36, 20, 1280, 1024, 50304};
    case Preset::gpt2_1558m:
      return {48, 25, 1600, 1024, 50304};
    case Preset::llama32_1b:
      return {16, 32, 2048, 131072, 128256, 8, 8192};
  }
  return {};
}

RotaryScaling scaling_of(const RotaryScalingConfig& config, Preset preset) {
  const RotaryScaling known{.factor = preset == Preset::llama32_1b ? 32.0 : 1.0};
  const RotaryScaling all{
      .factor = config.factor.value_or(known.factor),
      .low_freq_factor = config.low_freq_factor.value_or(known.low_freq_factor),
      .high_freq_factor = config.high_freq_factor.value_or(known.high_freq_factor),
      .original_context = config.original_context.value_or(known.original_context)};
  return all.active() ? all : RotaryScaling{};
}

}  // namespace

GptShape resolve(const ModelConfig& config) {
  const Sizes preset = sizes_of(config.preset);
  const bool published = config.preset == Preset::llama32_1b;
  const Family family = config.family.value_or(published ? Family::llama : Family::gpt2);
  const bool llama = family == Family::llama;
  const auto pick = [](std::int64_t given, std::int64_t otherwise) {
    return given != 0 ? given : otherwise;
  };
  GptShape shape{.layers = pick(config.layers, preset.layers),
                 .heads = pick(config.heads, preset.heads),
                 .channels = pick(config.channels, preset.channels),
                 .context = pick(config.context, preset.context),
                 .vocabulary = pick(config.vocabulary, preset.vocabulary),
                 .bias = config.bias.value_or(!llama),
                 .dropout = config.dropout,
                 .tied_head = config.tied_head.value_or(published || !llama),
                 .recompute = config.recompute};
  shape.norm = config.norm.value_or(llama ? Norm::rms_norm : Norm::layer_norm);
  shape.norm_epsilon = config.norm_epsilon.value_or(shape.norm_epsilon);
  shape.activation = config.activation.value_or(llama ? Activation::swiglu : Activation::gelu);
  shape.positions = config.positions.value_or(llama ? Positions::rotary : Positions::learned);
  if (shape.positions == Positions::rotary) {
    shape.rotary_theta = config.rotary_theta.value_or(llama ? 500000.0 : 10000.0);
    shape.rotary_scaling = scaling_of(config.rotary_scaling, config.preset);
  }
  shape.attention_window = config.attention_window.value_or(0);
  shape.logit_softcap = config.logit_softcap.value_or(0);
  shape.z_loss = config.z_loss;
  shape.set_key_value_heads(
      config.key_value_heads.value_or(pick(preset.key_value_heads, shape.heads)));
  shape.set_mlp_channels(
      config.mlp_channels.value_or(pick(preset.mlp_channels, shape.default_mlp_channels())));
  return shape;
}

}  // namespace trireme::model
