// SPDX-License-Identifier: Apache-2.0
// What a model is: its sizes and its parts, all known. Where they come from is config.hpp.
#pragma once

#include <cstdint>
#include <utility>

#include "base/key.hpp"

#include "model/window_pattern.hpp"
#include "nn/activation.hpp"
#include "nn/qk_norm.hpp"
#include "nn/recompute.hpp"
#include "ops/rotary.hpp"

namespace trireme::model {

enum class Norm : std::uint8_t { layer_norm, rms_norm };
/// The initial values of the layers that write to the residual stream: scaled down with the number
/// of layers, or zero, and then those of a head of its own too.
enum class OutputInit : std::uint8_t { scaled, zero };
/// How a token's position enters a model: by a vector for each position, or by queries and keys
/// that are rotated (ops/rotary.hpp).
enum class Positions : std::uint8_t { learned, rotary };

using nn::Activation;
using nn::QkNorm;
using nn::Recompute;
using nn::RecomputeKey;
using nn::RecomputeOfBlocks;
using ops::RotaryScaling;

/// All sizes known and consistent. The defaults are GPT-2's; what has no meaning in a model, as a
/// theta without rotary positions, is left at its default, so that equal models compare equal.
struct GptShape {
  /// Blocks; heads of queries; width of the residual stream; tokens of a sequence; ids, those that
  /// stand for nothing included. All above 0.
  std::int64_t layers = 0, heads = 0, channels = 0, context = 0, vocabulary = 0;
  bool bias = true;       ///< in linear layers, and in norms that have one
  double dropout = 0.0;   ///< rate, of the embedding, attention's weights and the branches
  bool tied_head = true;  ///< the head's weights are those of the token embedding
  RecomputeOfBlocks recompute = Recompute::none;  ///< a plan needs words, not a limit
  std::int64_t grouped_heads = 0;                 ///< of keys and values; 0: as many as heads
  std::int64_t head_width = 0;                    ///< channels of a head; 0: channels / heads
  std::int64_t hidden = 0;  ///< between the MLP's layers; 0: default_mlp_channels()
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
  LongLayers long_layers{};           ///< which do without that window; not all of them
  /// The token that begins a document, inside of which attention stays; -1: it sees all. Weights do
  /// not depend on it.
  std::int32_t document_token = -1;
  double logit_softcap = 0;  ///< 0: none
  double z_loss = 0;         ///< of training alone, as dropout
  /// Whose logits are made and go into the loss before the next; 0: all that exist at a time.
  std::int64_t loss_rows = 0;

  /// Of one head; those of all heads together may be more or fewer than `channels`.
  [[nodiscard]] std::int64_t head_channels() const {
    return head_width != 0 ? head_width : channels / heads;
  }
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
  /// 0: channels / heads.
  void set_head_channels(std::int64_t count) { head_width = count * heads == channels ? 0 : count; }
  void set_mlp_channels(std::int64_t count) {
    hidden = count == default_mlp_channels() ? 0 : count;
  }
  /// 0 tokens: none. A window that no layer has is none.
  void set_attention_window(std::int64_t tokens, const LongLayers& without) {
    const bool none =
        tokens == 0 || (layers > 0 && without.count() == static_cast<std::size_t>(layers));
    attention_window = none ? 0 : tokens;
    long_layers = none ? LongLayers{} : without;
  }
  [[nodiscard]] bool masks_documents() const { return document_token >= 0; }
  /// Of a layer's attention, in tokens; 0: none.
  [[nodiscard]] std::int64_t window_of(std::int64_t layer) const {
    return long_layers[static_cast<std::size_t>(layer)] ? 0 : attention_window;
  }
  /// A GPT-2 of these sizes: what is equal to it has no other part.
  [[nodiscard]] GptShape with_parts_of_gpt2() const {
    return {.layers = layers,
            .heads = heads,
            .channels = channels,
            .context = context,
            .vocabulary = vocabulary,
            .bias = bias,
            .dropout = dropout,
            .tied_head = tied_head,
            .recompute = recompute,
            .output_init = output_init,
            .document_token = document_token,
            .z_loss = z_loss,
            .loss_rows = loss_rows};
  }
  bool operator==(const GptShape&) const = default;
};

}  // namespace trireme::model

template <>
struct trireme::EnumNames<trireme::model::Norm> {
  using enum model::Norm;
  static constexpr std::pair<model::Norm, const char*> table[] = {{layer_norm, "layer_norm"},
                                                                  {rms_norm, "rms_norm"}};
};
template <>
struct trireme::EnumNames<trireme::model::OutputInit> {
  using enum model::OutputInit;
  static constexpr std::pair<model::OutputInit, const char*> table[] = {{scaled, "scaled"},
                                                                        {zero, "zero"}};
};
template <>
struct trireme::EnumNames<trireme::model::Positions> {
  using enum model::Positions;
  static constexpr std::pair<model::Positions, const char*> table[] = {{learned, "learned"},
                                                                       {rotary, "rotary"}};
};
