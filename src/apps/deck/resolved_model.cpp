// SPDX-License-Identifier: Apache-2.0
#include "deck/config.hpp"

namespace trireme::deck {

std::map<std::string, std::string> resolved_model(const trireme::model::GptShape& shape) {
  std::map<std::string, std::string> known;
  for (const auto& [key, value] : trireme::model::key_values(shape))
    known.emplace("model." + key, value);
  return known;
}

std::string model_section(const trireme::model::GptShape& shape) {
  auto usual =
      resolved_model({.layers = shape.layers, .heads = shape.heads, .channels = shape.channels});
  usual.erase("model.mlp_channels");  // its default depends on the activation
  constexpr std::string_view nested = "rotary_scaling.";
  std::string text, scaling;
  const auto add = [](std::string& to, std::string_view key, const std::string& value) {
    to += fmt::format("{}{}: {}", to.empty() ? "" : ", ", key, value);
  };
  for (const auto& [key, value] : trireme::model::key_values(shape)) {
    const bool size = key == "layers" || key == "heads" || key == "channels";
    const auto known = usual.find("model." + key);
    if (!size && known != usual.end() && known->second == value)
      continue;
    if (key.starts_with(nested))
      add(scaling, std::string_view(key).substr(nested.size()), value);
    else
      add(text, key, value);
  }
  if (!scaling.empty())
    add(text, "rotary_scaling", "{" + scaling + "}");
  return "model: {" + text + "}";
}

}  // namespace trireme::deck
