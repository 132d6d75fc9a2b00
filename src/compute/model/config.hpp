// SPDX-License-Identifier: Apache-2.0
// The deck section `model`. A preset fills the sizes in, a family gives the parts of which it is
// made; keys given beside them override both.
#pragma once

#include <cstdint>
#include <string>

#include "base/key.hpp"

#include "model/family.hpp"
#include "model/rotary_config.hpp"
#include "model/shape.hpp"

namespace trireme::model {

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
  Or<std::int64_t> head_channels{};
  Or<Norm> norm{};
  Or<bool> norm_gain{};
  Or<double> norm_epsilon{};
  Or<bool> embedding_norm{};
  Or<QkNorm> qk_norm{};
  Or<Activation> activation{};
  Or<std::int64_t> mlp_channels{};
  Or<Positions> positions{};
  Or<double> rotary_theta{};
  RotaryScalingConfig rotary_scaling{};
  Or<bool> bias{};
  double dropout = 0.0;
  Or<bool> tied_head{};
  Or<OutputInit> output_init{};
  Or<std::int64_t> attention_window{.value = std::nullopt, .keyword = "none"};
  Or<std::string> window_pattern{.value = std::nullopt, .keyword = "none"};
  bool document_mask = false;
  Or<double> logit_softcap{};
  double z_loss = 0.0;
  RecomputeKey recompute = Recompute::none;
  std::int64_t loss_rows = 0;
};

/// The groups of keys, in the order in which describe() shows them: sizes first.
template <class V>
void describe_sizes(V& v, ModelConfig& c) {
  v("preset", c.preset,
    {.help = "Published sizes of GPT-2, Llama, Qwen3 and nanochat; keys given beside it override "
             "the preset."});
  v("family", c.family,
    {.help =
         "What keys that are auto mean. gpt2: layer_norm, gelu, learned, biases, a tied head; "
         "llama: rms_norm, swiglu, rotary, no biases, a head of its own; qwen3: llama's, and "
         "qk_norm with_gain; nanochat: rms_norm without gain, also of the embedding, "
         "squared_relu, rotary, qk_norm without_gain, no biases, a head of its own, output_init "
         "zero (not the value embeddings, residual scalars, smear, backout and windows of its "
         "later versions). auto: the preset's, else gpt2."});
  v("layers", c.layers,
    {.unit = "blocks",
     .help = "Transformer blocks. 0: from the preset.",
     .min = 0,
     .max = most_layers,
     .change = Change::never});
  v("heads", c.heads,
    {.unit = "heads",
     .help = "Attention heads; must divide channels where head_channels is auto. 0: from the "
             "preset.",
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
  v("head_channels", c.head_channels,
    {.unit = "channels",
     .help = "Width of a head of queries, keys or values; heads together may be wider or narrower "
             "than the residual stream. auto: the preset's, else channels / heads.",
     .min = 1,
     .max = 65536,
     .change = Change::never});
}

/// What the model is made of.
template <class V>
void describe_parts(V& v, ModelConfig& c) {
  v("norm", c.norm,
    {.help = "What normalizes the residual stream: layer_norm, by mean and deviation, with biases "
             "where the model has some; rms_norm, by the root mean square. auto: the family's.",
     .change = Change::never});
  v("norm_gain", c.norm_gain,
    {.help = "One gain per channel in the norms of the residual stream. auto: the family's.",
     .change = Change::never});
  v("norm_epsilon", c.norm_epsilon,
    {.help = "Added to the variance or the mean square, also in qk_norm. auto: 1e-5; 1e-6 in "
             "the family qwen3, 2^-23 in nanochat.",
     .min = 1e-12,
     .max = 1.0,
     .change = Change::never});
  v("embedding_norm", c.embedding_norm,
    {.help = "A norm between the embedding and the first block. auto: the family's.",
     .change = Change::never});
  v("qk_norm", c.qk_norm,
    {.help = "RMS normalization of each head's queries and keys, which bounds their products: "
             "none; without_gain; with_gain, one gain per channel of a head for queries and one "
             "for keys, before the rotation. auto: the family's.",
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
             "1000000 in qwen3, 100000 in nanochat, 10000 in gpt2.",
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
  v("output_init", c.output_init,
    {.help = "Initial values of the output layers of attention and MLP: scaled, normal with "
             "deviation 0.02 / sqrt(2 x layers); zero, and so those of a head that shares no "
             "weights. auto: the family's.",
     .change = Change::never});
}

/// What a token sees.
template <class V>
void describe_attention(V& v, ModelConfig& c) {
  v("attention_window", c.attention_window,
    {.unit = "tokens",
     .help = "How many tokens a token sees, itself among them; none: all up to itself. In all "
             "layers, or in those of window_pattern.",
     .min = 1,
     .max = 1 << 20,
     .change = Change::never});
  v("window_pattern", c.window_pattern,
    {.help = "Which layers have attention_window: a letter S for one that has it, L for one that "
             "sees all before it. As many letters as layers: one for each layer; fewer, as "
             "nanochat's SSSL: they are repeated, and the last layer is an L. none: all have it.",
     .change = Change::never});
  v("document_mask", c.document_mask,
    {.help = "A token does not see the documents before its own in the row; the end-of-text token "
             "begins a document. In training, evaluation and sampling. Positions count through "
             "the row.",
     .change = Change::asked});
}

/// The loss, and the memory of a step.
template <class V>
void describe_loss_and_memory(V& v, ModelConfig& c) {
  v("logit_softcap", c.logit_softcap,
    {.help = "Cap c of the logits: they become c tanh(logit / c), in training, evaluation and "
             "sampling; 0: they are not capped. auto: the family's, 15 in nanochat, else 0.",
     .min = 0.0,
     .max = 1e6,
     .change = Change::never});
  v("z_loss", c.z_loss,
    {.help =
         "Weight k of the z-loss: training minimizes the cross-entropy plus k log(Z)^2, where Z "
         "is the sum of a token's exponentials. The losses that are reported stay the "
         "cross-entropy.",
     .min = 0.0,
     .max = 1.0});
  v("recompute", c.recompute,
    {.help = "Activations that backward computes again instead of keeping them: none; the outputs "
             "of the MLP's activation (gelu), with GELU a quarter of the memory; all of a block "
             "but its input, at a third more work. One word for all blocks, a list with one for "
             "each, or bytes, which all that a rank holds may take as `trireme plan` counts it (on "
             "a GPU without the snapshot, which lies in the host's memory): then as few blocks as "
             "possible are block, of the others as few as possible gelu, the first ones. Never "
             "changes the numbers (on a GPU see gpu.fused_gelu)."});
  v("loss_rows", c.loss_rows,
    {.unit = "rows",
     .help =
         "Rows whose logits are computed and go into the loss before the next ones, so few that "
         "their logits stay in a GPU's L2 cache: 256 rows of a vocabulary of 50304 are 26 MB. "
         "0: all rows whose logits exist at a time. A matrix library may round their logits "
         "otherwise.",
     .min = 0,
     .max = 1 << 24});
}

template <class V>
void describe(V& v, ModelConfig& c) {
  describe_sizes(v, c);
  describe_parts(v, c);
  describe_attention(v, c);
  describe_loss_and_memory(v, c);
}

/// Fills what `config` leaves open from its preset and family. Sizes that stay 0 are the caller's
/// to report; the token of a document mask is the tokenizer's.
GptShape resolve(const ModelConfig& config);

/// The way back, of what can no longer change in a trained model: without preset and family, with
/// the sizes, `bias` and `tied_head`, and every other key only where it differs from GPT-2's.
/// resolve() of it is `shape` but for what belongs to training alone: dropout, recompute,
/// output_init, z_loss and loss_rows; and but for the token of a document mask.
ModelConfig config_of(const GptShape& shape);

}  // namespace trireme::model
