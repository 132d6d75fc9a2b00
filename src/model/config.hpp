// SPDX-License-Identifier: Apache-2.0
// The deck section `model`. A preset fills the sizes in, a family says of which parts the model is
// made; keys given beside them override both.
#pragma once

#include <cstdint>
#include <utility>

#include "base/key.hpp"

#include "ops/rotary.hpp"

#include "nn/activation.hpp"
#include "nn/recompute.hpp"

namespace trireme::model {

enum class Preset : std::uint8_t { none, gpt2_124m, gpt2_350m, gpt2_774m, gpt2_1558m, llama32_1b };
/// What the keys that say nothing mean; every combination of the keys is a model.
enum class Family : std::uint8_t { gpt2, llama };
enum class Norm : std::uint8_t { layer_norm, rms_norm };
/// How a model knows where a token stands: by a vector for each position, or by queries and keys
/// that are rotated (ops/rotary.hpp).
enum class Positions : std::uint8_t { learned, rotary };

using nn::Activation;
using nn::Recompute;
using ops::RotaryScaling;

/// Of the angles of rotary positions, for contexts longer than the original one. What is not given
/// is the preset's, else none.
struct RotaryScalingConfig {
  Or<double> factor{};
  Or<double> low_freq_factor{};
  Or<double> high_freq_factor{};
  Or<std::int64_t> original_context{};
};

template <class V>
void describe(V& v, RotaryScalingConfig& c) {
  v("factor", c.factor,
    {.help = "Divides the frequencies of wavelengths that the original context does not hold. "
             "auto: the preset's, else 1: no scaling.",
     .min = 1.0,
     .max = 1e6,
     .change = Change::never});
  v("low_freq_factor", c.low_freq_factor,
    {.help = "Wavelengths above original_context divided by this are scaled in full. auto: 1.",
     .min = 0.0,
     .max = 1e6,
     .above_min = true,
     .change = Change::never});
  v("high_freq_factor", c.high_freq_factor,
    {.help = "Wavelengths below original_context divided by this are not scaled; those between are "
             "scaled in part. auto: 4.",
     .min = 0.0,
     .max = 1e6,
     .above_min = true,
     .change = Change::never});
  v("original_context", c.original_context,
    {.unit = "tokens",
     .help = "The context before it was extended. auto: 8192.",
     .min = 1,
     .max = 1 << 20,
     .change = Change::never});
}

/// Sizes as given: 0 means "not given", to be filled from the preset by resolve().
struct ModelConfig {
  Preset preset = Preset::none;
  Or<Family> family{};
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t channels = 0;
  std::int64_t context = 0;
  std::int64_t vocabulary = 0;
  Or<std::int64_t> key_value_heads{};
  Or<Norm> norm{};
  Or<double> norm_epsilon{};
  Or<Activation> activation{};
  Or<std::int64_t> mlp_channels{};
  Or<Positions> positions{};
  Or<double> rotary_theta{};
  RotaryScalingConfig rotary_scaling{};
  Or<bool> bias{};
  double dropout = 0.0;
  Or<bool> tied_head{};
  Or<std::int64_t> attention_window{.value = std::nullopt, .keyword = "none"};
  Or<double> logit_softcap{.value = std::nullopt, .keyword = "none"};
  double z_loss = 0.0;
  Recompute recompute = Recompute::none;
};

template <class V>
void describe(V& v, ModelConfig& c) {
  v("preset", c.preset,
    {.help = "Published sizes of GPT-2 and Llama; keys given beside it override the preset."});
  v("family", c.family,
    {.help = "What keys that are auto mean. gpt2: layer_norm, gelu, learned, biases, a tied head; "
             "llama: rms_norm, swiglu, rotary, no biases, a head of its own. auto: the preset's, "
             "else gpt2."});
  v("layers", c.layers,
    {.unit = "blocks",
     .help = "Transformer blocks. 0: from the preset.",
     .min = 0,
     .max = 1000,
     .change = Change::never});
  v("heads", c.heads,
    {.unit = "heads",
     .help = "Attention heads; must divide channels. 0: from the preset.",
     .min = 0,
     .max = 1024,
     .change = Change::never});
  v("channels", c.channels,
    {.unit = "channels",
     .help = "Width of the residual stream. 0: from the preset.",
     .min = 0,
     .max = 65536,
     .change = Change::never});
  v("context", c.context,
    {.unit = "tokens",
     .help = "Sequence length. 0: from the preset.",
     .min = 0,
     .max = 1 << 20,
     .change = Change::never});
  v("vocabulary", c.vocabulary,
    {.unit = "tokens",
     .help = "Size of the token alphabet; 256 or more for bytes. 0: from the preset, else from the "
             "tokenizer.",
     .min = 0,
     .max = 1 << 20,
     .change = Change::never});
  v("key_value_heads", c.key_value_heads,
    {.unit = "heads",
     .help = "Heads of keys and values, each shared by a group of query heads; must divide heads. "
             "auto: the preset's, else as many as heads.",
     .min = 1,
     .max = 1024,
     .change = Change::never});
  v("norm", c.norm,
    {.help = "What normalizes the residual stream: layer_norm, by mean and deviation, with gain "
             "and bias; rms_norm, by the root mean square, with a gain. auto: the family's.",
     .change = Change::never});
  v("norm_epsilon", c.norm_epsilon,
    {.help = "Added to the variance or the mean square. auto: 1e-5.",
     .min = 1e-12,
     .max = 1.0,
     .change = Change::never});
  v("activation", c.activation,
    {.help = "Inside the MLP. swiglu has two input layers, one of which gates the other. auto: the "
             "family's.",
     .change = Change::never});
  v("mlp_channels", c.mlp_channels,
    {.unit = "channels",
     .help = "Between the MLP's layers. auto: the preset's, else 4 x channels; with swiglu 8/3 x "
             "channels, rounded up to a multiple of 256.",
     .min = 1,
     .max = 1 << 20,
     .change = Change::never});
  v("positions", c.positions,
    {.help = "learned: an embedding of positions; rotary: queries and keys are rotated by angles "
             "that grow with the position. auto: the family's.",
     .change = Change::never});
  v("rotary_theta", c.rotary_theta,
    {.help = "Base of the wavelengths of rotary positions. auto: 500000 in the family llama, "
             "10000 in gpt2.",
     .min = 1.0,
     .max = 1e12,
     .above_min = true,
     .change = Change::never});
  v.section("rotary_scaling", c.rotary_scaling);
  v("bias", c.bias,
    {.help = "Biases in linear layers and layer norms. auto: the family's.",
     .change = Change::never});
  v("dropout", c.dropout,
    {.unit = "probability",
     .help = "Dropout of embeddings, attention and residual branches.",
     .min = 0.0,
     .max = 1.0,
     .below_max = true});
  v("tied_head", c.tied_head,
    {.help = "The output head shares the token embedding's weights. auto: the preset's, else the "
             "family's.",
     .change = Change::never});
  v("attention_window", c.attention_window,
    {.unit = "tokens",
     .help = "How many tokens a token sees, itself among them; none: all up to itself. On CPUs.",
     .min = 1,
     .max = 1 << 20,
     .change = Change::never});
  v("logit_softcap", c.logit_softcap,
    {.help = "c: the model's logits are c tanh(logit / c), in training, evaluation and sampling; "
             "none: they are not capped.",
     .min = 1e-3,
     .max = 1e6,
     .change = Change::never});
  v("z_loss", c.z_loss,
    {.help = "k: training minimizes the cross-entropy plus k log(Z)^2, where Z is the sum of a "
             "token's exponentials. The losses that are reported stay the cross-entropy.",
     .min = 0.0,
     .max = 1.0});
  v("recompute", c.recompute,
    {.help = "Activations that backward computes again instead of keeping them: none; the outputs "
             "of the MLP's activation (gelu), with GELU a quarter of the memory; all of a block "
             "but its input, at a third more "
             "work. Never changes the numbers."});
}

/// All sizes known and consistent. The defaults are GPT-2's; what has no meaning in a model, as a
/// theta without rotary positions, is left at its default, so that equal models compare equal.
struct GptShape {
  std::int64_t layers = 0, heads = 0, channels = 0, context = 0, vocabulary = 0;
  bool bias = true;
  double dropout = 0.0;
  bool tied_head = true;
  Recompute recompute = Recompute::none;
  std::int64_t grouped_heads = 0;  ///< of keys and values; 0: as many as heads
  std::int64_t hidden = 0;         ///< between the MLP's layers; 0: default_mlp_channels()
  Norm norm = Norm::layer_norm;
  double norm_epsilon = 1e-5;
  Activation activation = Activation::gelu;
  Positions positions = Positions::learned;
  double rotary_theta = 0;
  RotaryScaling rotary_scaling{};
  std::int64_t attention_window = 0;  ///< tokens; 0: none
  double logit_softcap = 0;           ///< 0: none
  double z_loss = 0;                  ///< of training alone, as dropout

  [[nodiscard]] std::int64_t head_channels() const { return channels / heads; }
  [[nodiscard]] std::int64_t key_value_heads() const {
    return grouped_heads != 0 ? grouped_heads : heads;
  }
  /// Between the MLP's layers.
  [[nodiscard]] std::int64_t mlp_channels() const {
    return hidden != 0 ? hidden : default_mlp_channels();
  }
  /// Source of SwiGLU's: Touvron et al. 2023, section 2.2, and the published code's multiple of
  /// 256. Three matrices have about the elements of two with 4 x channels.
  [[nodiscard]] std::int64_t default_mlp_channels() const {
    constexpr std::int64_t even = 256;
    return activation == Activation::swiglu ? (8 * channels / 3 + even - 1) / even * even
                                            : 4 * channels;
  }
  /// Sets a size so that shapes of equal models are equal.
  void set_key_value_heads(std::int64_t count) { grouped_heads = count == heads ? 0 : count; }
  void set_mlp_channels(std::int64_t count) {
    hidden = count == default_mlp_channels() ? 0 : count;
  }
  bool operator==(const GptShape&) const = default;
};

/// Fills what `config` leaves open from its preset and family. Sizes that stay 0 are the caller's
/// to report.
GptShape resolve(const ModelConfig& config);

}  // namespace trireme::model

template <>
struct trireme::EnumNames<trireme::model::Preset> {
  using enum model::Preset;
  static constexpr std::pair<model::Preset, const char*> table[] = {
      {none, "none"},           {gpt2_124m, "gpt2-124m"},   {gpt2_350m, "gpt2-350m"},
      {gpt2_774m, "gpt2-774m"}, {gpt2_1558m, "gpt2-1558m"}, {llama32_1b, "llama3.2-1b"}};
};
template <>
struct trireme::EnumNames<trireme::model::Family> {
  using enum model::Family;
  static constexpr std::pair<model::Family, const char*> table[] = {{gpt2, "gpt2"},
                                                                    {llama, "llama"}};
};
template <>
struct trireme::EnumNames<trireme::model::Norm> {
  using enum model::Norm;
  static constexpr std::pair<model::Norm, const char*> table[] = {{layer_norm, "layer_norm"},
                                                                  {rms_norm, "rms_norm"}};
};
template <>
struct trireme::EnumNames<trireme::model::Positions> {
  using enum model::Positions;
  static constexpr std::pair<model::Positions, const char*> table[] = {{learned, "learned"},
                                                                       {rotary, "rotary"}};
};
