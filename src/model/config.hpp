// SPDX-License-Identifier: Apache-2.0
// The deck section `model`. A preset fills the sizes in; keys given beside it override the preset.
#pragma once

#include <cstdint>
#include <utility>

#include "base/key.hpp"

#include "nn/recompute.hpp"

namespace trireme::model {

enum class Preset : std::uint8_t { none, gpt2_124m, gpt2_350m, gpt2_774m, gpt2_1558m };

using nn::Recompute;

/// Sizes as given: 0 means "not given", to be filled from the preset by resolve().
struct ModelConfig {
  Preset preset = Preset::none;
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t channels = 0;
  std::int64_t context = 0;
  std::int64_t vocabulary = 0;
  bool bias = true;
  double dropout = 0.0;
  bool tied_head = true;
  Recompute recompute = Recompute::none;
};

template <class V>
void describe(V& v, ModelConfig& c) {
  v("preset", c.preset,
    {.help = "Published GPT-2 sizes; keys given beside it override the preset."});
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
  v("bias", c.bias, {.help = "Biases in linear layers and layer norms.", .change = Change::never});
  v("dropout", c.dropout,
    {.unit = "probability",
     .help = "Dropout of embeddings, attention and residual branches.",
     .min = 0.0,
     .max = 1.0,
     .below_max = true});
  v("tied_head", c.tied_head,
    {.help = "The output head shares the token embedding's weights.", .change = Change::never});
  v("recompute", c.recompute,
    {.help = "Activations that backward computes again instead of keeping them: none; the GELU "
             "outputs, a quarter of the memory; all of a block but its input, at a third more "
             "work. Never changes the numbers."});
}

/// All sizes known and consistent.
struct GptShape {
  std::int64_t layers = 0, heads = 0, channels = 0, context = 0, vocabulary = 0;
  bool bias = true;
  double dropout = 0.0;
  bool tied_head = true;
  Recompute recompute = Recompute::none;

  [[nodiscard]] std::int64_t head_channels() const { return channels / heads; }
  /// Between the MLP's two layers.
  [[nodiscard]] std::int64_t mlp_channels() const { return 4 * channels; }
  bool operator==(const GptShape&) const = default;
};

/// Fills what `config` leaves open from its preset. Sizes that stay 0 are the caller's to report.
GptShape resolve(const ModelConfig& config);

}  // namespace trireme::model

template <>
struct trireme::EnumNames<trireme::model::Preset> {
  using enum model::Preset;
  static constexpr std::pair<model::Preset, const char*> table[] = {{none, "none"},
                                                                    {gpt2_124m, "gpt2-124m"},
                                                                    {gpt2_350m, "gpt2-350m"},
                                                                    {gpt2_774m, "gpt2-774m"},
                                                                    {gpt2_1558m, "gpt2-1558m"}};
};
