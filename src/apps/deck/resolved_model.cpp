// SPDX-License-Identifier: Apache-2.0
#include "deck/config.hpp"
#include "deck/value.hpp"

namespace trireme::deck {

std::map<std::string, std::string> resolved_model(const trireme::model::GptShape& shape) {
  std::map<std::string, std::string> known;
  const auto add = [&](const char* key, const auto& value) {
    known.emplace(std::string("model.") + key, yaml_text(value));
  };
  add("layers", shape.layers);
  add("heads", shape.heads);
  add("channels", shape.channels);
  add("context", shape.context);
  add("vocabulary", shape.vocabulary);
  add("key_value_heads", shape.heads > 0 ? shape.key_value_heads() : 0);
  add("head_channels", shape.heads > 0 ? shape.head_channels() : 0);
  add("norm", shape.norm);
  add("norm_gain", shape.norm_gain);
  add("norm_epsilon", shape.norm_epsilon);
  add("embedding_norm", shape.embedding_norm);
  add("qk_norm", shape.qk_norm);
  add("activation", shape.activation);
  add("mlp_channels", shape.mlp_channels());
  add("positions", shape.positions);
  add("rotary_theta", shape.rotary_theta);
  add("rotary_scaling.factor", shape.rotary_scaling.factor);
  add("rotary_scaling.low_freq_factor", shape.rotary_scaling.low_freq_factor);
  add("rotary_scaling.high_freq_factor", shape.rotary_scaling.high_freq_factor);
  add("rotary_scaling.original_context", shape.rotary_scaling.original_context);
  add("bias", shape.bias);
  add("tied_head", shape.tied_head);
  add("output_init", shape.output_init);
  Or<std::int64_t> window{.value = std::nullopt, .keyword = "none"};
  if (shape.attention_window > 0)
    window.value = shape.attention_window;
  add("attention_window", window);
  Or<std::string> pattern{.value = std::nullopt, .keyword = "none"};
  if (shape.long_layers.any())
    pattern.value = trireme::model::pattern_of(shape.long_layers, shape.layers);
  add("window_pattern", pattern);
  add("logit_softcap", shape.logit_softcap);
  return known;
}

std::string model_section(const trireme::model::GptShape& shape) {
  const auto known = resolved_model(shape);
  const auto value = [&](const char* key) { return known.at(std::string("model.") + key); };
  std::string text;
  for (const char* key : {"layers", "heads", "channels", "context", "vocabulary", "key_value_heads",
                          "head_channels", "norm", "norm_gain", "norm_epsilon", "embedding_norm",
                          "qk_norm", "activation", "mlp_channels", "positions"})
    text += fmt::format("{}: {}, ", key, value(key));
  if (shape.positions == trireme::model::Positions::rotary)
    text += fmt::format("rotary_theta: {}, ", value("rotary_theta"));
  if (shape.rotary_scaling.active())
    text += fmt::format(
        "rotary_scaling: {{factor: {}, low_freq_factor: {}, high_freq_factor: {}, "
        "original_context: {}}}, ",
        value("rotary_scaling.factor"), value("rotary_scaling.low_freq_factor"),
        value("rotary_scaling.high_freq_factor"), value("rotary_scaling.original_context"));
  if (shape.attention_window > 0)
    text += fmt::format("attention_window: {}, ", value("attention_window"));
  if (shape.long_layers.any())
    text += fmt::format("window_pattern: {}, ", value("window_pattern"));
  if (shape.logit_softcap > 0)
    text += fmt::format("logit_softcap: {}, ", value("logit_softcap"));
  return fmt::format("model: {{{}bias: {}, tied_head: {}}}", text, value("bias"),
                     value("tied_head"));
}

}  // namespace trireme::deck
