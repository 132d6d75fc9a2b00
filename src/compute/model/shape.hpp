// SPDX-License-Identifier: Apache-2.0
// The resolved description of a model: all its sizes and parts. config.hpp computes it from a deck.
#pragma once

#include <bitset>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>

#include "base/key.hpp"

#include "nn/config.hpp"
#include "ops/rotary.hpp"

namespace trireme::model {

inline constexpr std::int64_t most_layers = 1000;
/// The numbers of the layers without window.
using LongLayers = std::bitset<most_layers>;

/// The long layers of the deck key window_pattern, a string of letters: S (short) has the attention
/// window, L (long) attends to all earlier tokens; other letters count as S. A string with one
/// letter per layer is used as it is. A shorter one is repeated over the layers, and the last layer
/// is always long, as in nanochat (github.com/karpathy/nanochat, nanochat/gpt.py, window_pattern
/// "SSSL"). None if `layers` is 0 or smaller than the number of letters.
LongLayers long_layers(std::string_view pattern, std::int64_t layers);

/// One letter per layer.
std::string pattern_of(const LongLayers& long_layers, std::int64_t layers);

enum class Norm : std::uint8_t { layer_norm, rms_norm };
/// Initial values of the layers that write to the residual stream: scaled down with the number of
/// layers, or zero, also in an untied head.
enum class OutputInit : std::uint8_t { scaled, zero };
/// Position encoding: a learned vector per position, or rotated queries and keys (ops/rotary.hpp).
enum class Positions : std::uint8_t { learned, rotary };

using nn::Activation;
using nn::QkNorm;
using nn::Recompute;
using nn::RecomputeKey;
using ops::RotaryScaling;

/// All sizes are known and consistent. The defaults are GPT-2's. Members without meaning in a model
/// (theta without rotary positions) have their defaults, so that equal models compare equal.
struct GptShape {
  /// Blocks; query heads; width of the residual stream; tokens of a sequence; token ids, including
  /// unused ones. All above 0.
  std::int64_t layers = 0, heads = 0, channels = 0, context = 0, vocabulary = 0;
  bool bias = true;       ///< in linear layers, and in norms that have one
  double dropout = 0.0;   ///< rate, of the embedding, attention's weights and the branches
  bool tied_head = true;  ///< the head shares the token embedding's weights
  RecomputeKey recompute = Recompute::none;  ///< a plan needs words, not a limit
  std::int64_t grouped_heads = 0;            ///< key and value heads; 0: as many as heads
  std::int64_t head_width = 0;               ///< channels of a head; 0: channels / heads
  std::int64_t hidden = 0;                   ///< width of the MLP; 0: default_mlp_channels()
  Norm norm = Norm::layer_norm;
  bool norm_gain = true;        ///< in the norms of the residual stream
  double norm_epsilon = 1e-5;   ///< also of qk_norm
  bool embedding_norm = false;  ///< a norm between the embedding and the first block
  QkNorm qk_norm = QkNorm::none;
  Activation activation = Activation::gelu;
  Positions positions = Positions::learned;
  double rotary_theta = 0;  ///< base of the wavelengths; 0 without rotary positions
  RotaryScaling rotary_scaling{};
  OutputInit output_init = OutputInit::scaled;
  std::int64_t attention_window = 0;  ///< tokens; 0: none
  LongLayers long_layers{};           ///< layers without the window; never all
  /// The token that begins a document, to which attention is restricted; -1: no document mask.
  /// Weights do not depend on it.
  std::int32_t document_token = -1;
  bool qkv_bias = false;     ///< of queries, keys and values alone: not together with `bias`
  double logit_softcap = 0;  ///< 0: none
  double z_loss = 0;         ///< only in training, as dropout
  /// Rows for which logits and loss are computed at a time; 0: see nn::HeadConfig.
  std::int64_t loss_rows = 0;

  /// Width of a head; heads x head_channels() may differ from `channels`.
  [[nodiscard]] std::int64_t head_channels() const {
    return head_width != 0 ? head_width : channels / heads;
  }
  [[nodiscard]] std::int64_t key_value_heads() const {
    return grouped_heads != 0 ? grouped_heads : heads;
  }
  [[nodiscard]] std::int64_t mlp_channels() const {
    return hidden != 0 ? hidden : default_mlp_channels();
  }
  /// SwiGLU: three matrices with about as many elements as two with 4 x channels. Source: Touvron
  /// et al. 2023, section 2.2; the multiple of 256 is from the published code.
  [[nodiscard]] std::int64_t default_mlp_channels() const {
    constexpr std::int64_t even = 256;
    return activation == Activation::swiglu ? (8 * channels / 3 + even - 1) / even * even
                                            : 4 * channels;
  }
  /// The setters store 0 for default sizes, so that equal models compare equal.
  void set_key_value_heads(std::int64_t count) { grouped_heads = count == heads ? 0 : count; }
  /// 0: channels / heads.
  void set_head_channels(std::int64_t count) { head_width = count * heads == channels ? 0 : count; }
  void set_mlp_channels(std::int64_t count) {
    hidden = count == default_mlp_channels() ? 0 : count;
  }
  /// 0 tokens, or no layer with the window: no window.
  void set_attention_window(std::int64_t tokens, const LongLayers& without) {
    const bool none =
        tokens == 0 || (layers > 0 && without.count() == static_cast<std::size_t>(layers));
    attention_window = none ? 0 : tokens;
    long_layers = none ? LongLayers{} : without;
  }
  [[nodiscard]] bool masks_documents() const { return document_token >= 0; }
  /// The attention window of a layer in tokens; 0: none.
  [[nodiscard]] std::int64_t window_of(std::int64_t layer) const {
    return long_layers[static_cast<std::size_t>(layer)] ? 0 : attention_window;
  }
  bool operator==(const GptShape&) const = default;
  /// What is packed (base/packing.hpp): all but `recompute`, which the shape of stored weights lacks.
  auto fields() {
    return std::tie(layers, heads, channels, context, vocabulary, bias, dropout, tied_head,
                    grouped_heads, head_width, hidden, norm, norm_gain, norm_epsilon,
                    embedding_norm, qk_norm, activation, positions, rotary_theta, rotary_scaling,
                    output_init, attention_window, long_layers, document_token, qkv_bias,
                    logit_softcap, z_loss, loss_rows);
  }
};

}  // namespace trireme::model
