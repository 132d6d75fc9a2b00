// SPDX-License-Identifier: Apache-2.0
// The deck section `model`. A preset gives the sizes and a family the parts of the model; keys that
// are given explicitly override both.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/key.hpp"

#include "model/family.hpp"
#include "model/rotary_config.hpp"
#include "model/shape.hpp"

namespace trireme::model {

/// The keys as given in the deck. resolve() replaces 0 and auto by values of the preset and family.
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
  Or<bool> qkv_bias{};
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
  const FixedKeys<V> f{v};
  v("preset", c.preset,
    {.help = "Sizes of a published GPT-2, Llama, Qwen3 or nanochat model. Keys that "
             "are given override the preset."});
  v("family", c.family,
    {.help = "Defines the values of other keys that are auto. auto: the family of the preset, else "
             "gpt2. gpt2: layer_norm, gelu, learned positions, biases, tied head. llama: rms_norm, "
             "swiglu, rotary positions, no biases, untied head. qwen2: as llama, with qkv_bias. "
             "qwen3: as llama, with qk_norm with_gain. nanochat: rms_norm without gain, "
             "embedding_norm, squared_relu, rotary positions, qk_norm without_gain, no biases, "
             "untied head, output_init zero, logit_softcap 15. Value embeddings, residual scalars, "
             "smear, backout and windows of later nanochat versions are not included."});
  f("layers", c.layers,
    {.unit = "blocks",
     .help = "Number of transformer blocks. 0: from the preset.",
     .min = 0,
     .max = most_layers});
  f("heads", c.heads,
    {.unit = "heads",
     .help = "Number of attention heads. Must divide channels if head_channels is auto. 0: from "
             "the preset.",
     .min = 0,
     .max = 1024});
  f("channels", c.channels,
    {.unit = "channels",
     .help = "Width of the residual stream. 0: from the preset.",
     .min = 0,
     .max = 65536});
  f("context", c.context,
    {.unit = "tokens", .help = "Sequence length. 0: from the preset.", .min = 0, .max = 1 << 20});
  f("vocabulary", c.vocabulary,
    {.unit = "tokens",
     .help = "Number of token ids that the model knows; at least 256 for bytes. 0: from the "
             "preset, else from the tokenizer.",
     .min = 0,
     .max = 1 << 20});
  f("key_value_heads", c.key_value_heads,
    {.unit = "heads",
     .help = "Number of key and value heads for grouped-query attention. Must divide heads. auto: "
             "from the preset, else the value of heads.",
     .min = 1,
     .max = 1024});
  f("head_channels", c.head_channels,
    {.unit = "channels",
     .help = "Width of a query, key or value head. heads x head_channels may differ from channels. "
             "auto: from the preset, else channels / heads.",
     .min = 1,
     .max = 65536});
}

template <class V>
void describe_parts(V& v, ModelConfig& c) {
  const FixedKeys<V> f{v};
  f("norm", c.norm,
    {.help =
         "Normalization of the residual stream. layer_norm: by mean and standard deviation, with a "
         "bias if `bias` is true. rms_norm: by the root mean square. auto: from the family."});
  f("norm_gain", c.norm_gain,
    {.help =
         "Learn one gain per channel in the norms of the residual stream. auto: from the family."});
  f("norm_epsilon", c.norm_epsilon,
    {.help = "Added to the variance or mean square in all norms, also qk_norm. auto: 1e-6 in the "
             "families qwen2 and qwen3, 2^-23 in nanochat, else 1e-5.",
     .min = 1e-12,
     .max = 1.0});
  f("embedding_norm", c.embedding_norm,
    {.help = "Normalize between the embedding and the first block. auto: from the family."});
  f("qk_norm", c.qk_norm,
    {.help = "RMS normalization of each head's queries and keys, which bounds the attention "
             "logits. none, without_gain, or with_gain: learn one gain per head channel for "
             "queries and one for keys, applied before the rotation. auto: from the family."});
  f("activation", c.activation,
    {.help = "Activation function of the MLP. swiglu has two input layers, one of which gates the "
             "other. auto: from the family."});
  f("mlp_channels", c.mlp_channels,
    {.unit = "channels",
     .help = "Width of the MLP's hidden layer. auto: from the preset, else 4 x channels; with "
             "swiglu 8/3 x channels, rounded up to a multiple of 256.",
     .min = 1,
     .max = 1 << 20});
  f("positions", c.positions,
    {.help = "Position encoding. learned: an embedding of positions. rotary: queries and keys are "
             "rotated by an angle proportional to the position. auto: from the family."});
  f("rotary_theta", c.rotary_theta,
    {.help = "Base of the wavelengths of rotary positions. Increase it for longer contexts. auto: "
             "500000 in the family llama, "
             "1000000 in qwen2 and qwen3, 100000 in nanochat, 10000 in gpt2.",
     .min = 1.0,
     .max = 1e12,
     .above_min = true});
  v.section("rotary_scaling", c.rotary_scaling);
  f("bias", c.bias,
    {.help = "Use biases in linear layers and layer norms. auto: from the family."});
  f("qkv_bias", c.qkv_bias,
    {.help =
         "Use biases in the layers of queries, keys and values where `bias` is false. auto: from "
         "the family."});
  v("dropout", c.dropout,
    {.unit = "probability",
     .help = "Dropout probability of embeddings, attention and residual branches. Use "
             "about 0.1 if the data is repeated many times.",
     .min = 0.0,
     .max = 1.0,
     .below_max = true});
  f("tied_head", c.tied_head,
    {.help = "Share the weights of the output head and the token embedding. auto: from the preset, "
             "else from the family."});
  f("output_init", c.output_init,
    {.help = "Initial values of the output layers of attention and MLP. scaled: normal with "
             "standard deviation 0.02 / sqrt(2 x layers). zero: zero, also in an untied head. "
             "auto: from the family."});
}

/// Which tokens a token attends to.
template <class V>
void describe_attention(V& v, ModelConfig& c) {
  const FixedKeys<V> f{v};
  f("attention_window", c.attention_window,
    {.unit = "tokens",
     .help = "Sliding window of attention: the number of tokens that a token attends to, including "
             "itself. none: all tokens up to itself. Applies to all layers, or to those "
             "chosen by window_pattern.",
     .min = 1,
     .max = 1 << 20});
  f("window_pattern", c.window_pattern,
    {.help = "Which layers use attention_window: S for a layer with the window, L for one without. "
             "With fewer letters than layers, as in nanochat's SSSL, the pattern is repeated and "
             "the last layer is L. none: all layers use the window."});
  v("document_mask", c.document_mask,
    {.help = "Restrict attention to the token's own document, in training, evaluation and "
             "sampling. The end-of-text token begins a document. Positions count from the start of "
             "the row.",
     .change = Change::asked});
}

/// The loss and the memory of a step.
template <class V>
void describe_loss_and_memory(V& v, ModelConfig& c) {
  const FixedKeys<V> f{v};
  f("logit_softcap", c.logit_softcap,
    {.help = "Soft cap c of the logits: they become c tanh(logit / c) in training, evaluation and "
             "sampling. 0: no cap. auto: 15 in the family nanochat, else 0.",
     .min = 0.0,
     .max = 1e6});
  v("z_loss", c.z_loss,
    {.help = "Weight k of the z-loss: training minimizes the cross-entropy plus k log(Z)^2, where "
             "Z is the sum of a token's exponentials. Reported losses are the cross-entropy only. "
             "0: no z-loss. Use about 1e-4 if the logits grow without bound.",
     .min = 0.0,
     .max = 1.0});
  v("recompute", c.recompute,
    {.help = "Save memory by recomputing activations in backward. Results do not change (on a GPU "
             "see gpu.fused_gelu). One word for all blocks, a list with one word "
             "per block, or a number of bytes. none: retain all activations. gelu: recompute the "
             "output of the MLP's activation; saves about a quarter of the memory with GELU. "
             "block: retain only the input of a block; costs about a third more work. Bytes, such "
             "as 60 GiB: the limit for the memory of a rank as counted by `trireme plan` (on a GPU "
             "without the checkpoint snapshot in host memory); as few blocks as possible use "
             "block, and as few as possible of the others gelu, beginning with the first block."});
  v("loss_rows", c.loss_rows,
    {.unit = "rows",
     .help =
         "Number of rows for which logits and loss are computed at a time. 0: all rows of "
         "a chunk; on a CPU in bf16, at most those whose fp32 logits take 104 MiB. On a GPU, try a "
         "number whose logits fit into the L2 cache: 256 rows of a "
         "vocabulary of 50304 take 26 MB. A matrix library may then round the logits differently.",
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

/// Fills keys that are 0 or auto from the preset and family. The caller must report sizes that are
/// still 0, and must set document_token from the tokenizer.
GptShape resolve(const ModelConfig& config);

/// 1 + 0.1 log(factor). Source: Peng et al. 2023, section 3.4.
double yarn_attention_factor(double factor);

/// The keys of the section that cannot change in a trained model ("rotary_scaling.factor"), with
/// their resolved values as a deck states them, in the order of describe().
std::vector<std::pair<std::string, std::string>> key_values(const GptShape& shape);

}  // namespace trireme::model
