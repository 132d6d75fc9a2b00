// SPDX-License-Identifier: Apache-2.0
#include <string>

#include <fmt/format.h>

#include "ops/dropout.hpp"

#include "deck/check.hpp"

namespace trireme::deck {
namespace {

using model::Positions;

/// Limit of our own attention kernels on a GPU (ops/cuda/attention.hpp); cuDNN's is lower.
constexpr std::int64_t most_gpu_head_channels = 256;

struct ModelRules : Rules {
  void heads_divide_channels() const {
    if (shape_.head_width != 0 || shape_.channels % shape_.heads == 0)
      return;
    conflict({"model.channels", "model.heads"},
             fmt::format("channels must be a multiple of heads. Use {} channels.",
                         multiples_near(shape_.channels, shape_.heads)));
  }

  void groups_divide_heads() const {
    const std::int64_t groups = shape_.key_value_heads();
    if (shape_.heads % groups == 0)
      return;
    std::int64_t below = groups;
    while (shape_.heads % below != 0) --below;
    conflict({"model.key_value_heads", "model.heads"},
             fmt::format("heads must be a multiple of key_value_heads. Use key_value_heads: {}.",
                         below));
  }

  void heads_suit_the_kernels() const {
    const std::int64_t width = shape_.head_channels();
    const bool own = shape_.head_width != 0;
    if (shape_.positions == Positions::rotary && width % 2 != 0) {
      std::vector<std::string> keys{"model.positions", own ? "model.head_channels" : "model.heads"};
      if (!own)
        keys.emplace_back("model.channels");
      conflict(
          keys,
          fmt::format("rotary positions need an even number of channels per head, not {}", width));
    }
    if (config_.run.device == session::DeviceChoice::cuda && width > most_gpu_head_channels)
      conflict({own ? "model.head_channels" : "model.heads", "run.device"},
               fmt::format("attention on a GPU supports heads of at most {} channels, not {}",
                           most_gpu_head_channels, width));
  }

  /// Checks model.window_pattern: letters S and L, of which some layer gets a window.
  void window_pattern_means_something() const {
    constexpr const char* key = "model.window_pattern";
    if (!config_.model.window_pattern.given())
      return;
    const std::string& pattern = *config_.model.window_pattern.value;
    if (pattern.empty() || pattern.find_first_not_of("SL") != std::string::npos) {
      say(key, fmt::format("'{}' must consist of the letters S (with the window) and L (without)",
                           pattern));
      return;
    }
    if (readable({"model.attention_window"}) && !config_.model.attention_window.given())
      say(key, "without effect: model.attention_window is none");
    else if (pattern.find('S') == std::string::npos)
      say(key, fmt::format("with {} no layer uses model.attention_window", pattern));
    if (readable({"model.layers", "model.preset"}) && shape_.layers > 0 &&
        std::ssize(pattern) > shape_.layers)
      conflict({key, "model.layers"}, "there are more letters than layers");
  }

  void recompute_of_every_block() const {
    const auto* list = config_.model.recompute.list();
    if (list == nullptr || shape_.layers == 0 || std::ssize(*list) == shape_.layers)
      return;
    conflict({"model.recompute", "model.layers"},
             fmt::format("the list has {} words. Give one word per layer, or one word for all.",
                         list->size()));
  }

  void rotary_keys_mean_something() const {
    static constexpr std::pair<const char*, std::string_view> scaling[] = {
        {"model.rotary_scaling.type", "llama3, yarn, linear"},
        {"model.rotary_scaling.low_freq_factor", "llama3"},
        {"model.rotary_scaling.high_freq_factor", "llama3"},
        {"model.rotary_scaling.beta_slow", "yarn"},
        {"model.rotary_scaling.beta_fast", "yarn"},
        {"model.rotary_scaling.attention_factor", "yarn"},
        {"model.rotary_scaling.original_context", "llama3, yarn"}};
    const auto without_effect = [&](const char* key, const std::string& reason) {
      if (places_.readable(key) && altered(key))
        say(key, fmt::format("without effect: {}", reason));
    };
    if (!readable({"model.positions", "model.family", "model.preset"}))
      return;
    if (shape_.positions != Positions::rotary) {
      constexpr const char* reason = "model.positions is learned, not rotary";
      if (config_.model.rotary_theta.given())
        without_effect("model.rotary_theta", reason);
      if (config_.model.rotary_scaling.factor.value_or(1) != 1)
        without_effect("model.rotary_scaling.factor", reason);
      for (const auto& [key, types] : scaling) without_effect(key, reason);
      return;
    }
    if (!readable({"model.rotary_scaling.factor", "model.rotary_scaling.type"}))
      return;
    const auto& s = shape_.rotary_scaling;
    for (const auto& [key, types] : scaling)
      if (!s.active())
        without_effect(key, "model.rotary_scaling.factor is 1, no scaling");
      else if (types.find(word(s.type)) == std::string_view::npos)
        without_effect(key, fmt::format("model.rotary_scaling.type is {}", word(s.type)));
    const auto in_order = [&](std::size_t below, double low, std::size_t above, double high) {
      if (high <= low)
        conflict({scaling[below].first, scaling[above].first},
                 leaf(scaling[below].first) + " must be below " + leaf(scaling[above].first));
    };
    in_order(1, s.low_freq_factor, 2, s.high_freq_factor);
    in_order(3, s.beta_slow, 4, s.beta_fast);
  }

  void attention_can_drop() const {
    if (shape_.dropout > 0 && shape_.heads * shape_.context > ops::most_dropped / shape_.context)
      conflict({"model.dropout", "model.heads", "model.context"},
               "heads times the square of the context can be 2^42 at most with dropout");
  }

  void check() const {
    if (config_.model.qkv_bias.given() && shape_.bias && readable({"model.bias"}))
      say("model.qkv_bias", "without effect: model.bias is true");
    if (readable({"model", "model.rotary_scaling"}))
      rotary_keys_mean_something();
    if (readable({"model.window_pattern"}))
      window_pattern_means_something();
    if (readable({"model.recompute", "model.layers", "model.preset"}))
      recompute_of_every_block();
    if (!readable({"model.preset", "model.heads", "model.channels", "model.head_channels"}) ||
        shape_.heads == 0)
      return;
    heads_divide_channels();
    if (readable({"model.context", "model.dropout"}))
      attention_can_drop();
    if (readable({"model.key_value_heads"}))
      groups_divide_heads();
    if ((shape_.head_width != 0 || shape_.channels % shape_.heads == 0) &&
        readable({"model.positions", "model.family"}))
      heads_suit_the_kernels();
  }
};

}  // namespace

void check_model(const Rules& rules) {
  ModelRules{rules}.check();
}

}  // namespace trireme::deck
