// SPDX-License-Identifier: Apache-2.0
// Keys of GPT-2's config.json that are not in the tables of family.hpp.
#include <fmt/format.h>

#include "weights/config_reader.hpp"

namespace trireme::weights {
namespace {

using model::Activation;
using text::Json;

constexpr const char* activation_key = "activation_function";

Activation activation_of(ConfigReader& config) {
  const Json& given = config.value(activation_key);
  if (given == "relu2")
    return Activation::squared_relu;
  if (given != "gelu_new" && given != "gelu_pytorch_tanh")
    config.say(activation_key,
               fmt::format("{}: trireme has GELU in its tanh form and the square of ReLU; the "
                           "value must be \"gelu_new\" or \"gelu_pytorch_tanh\" or \"relu2\"",
                           given.is_null() ? "missing" : text::shortened(given.dump())));
  return Activation::gelu;
}

}  // namespace

void read_gpt2(ConfigReader& config, model::GptShape& shape) {
  shape.activation = activation_of(config);
  shape.norm_epsilon =
      config.positive(config.value("layer_norm_epsilon"), "layer_norm_epsilon", shape.norm_epsilon);
  if (shape.channels > 0)
    shape.set_mlp_channels(config.count("n_inner", shape.default_mlp_channels(), 1 << 20));
  shape.tied_head = config.flag("tie_word_embeddings", true);
}

void write_gpt2(OrderedJson& root, const model::GptShape& shape) {
  root["n_ctx"] = shape.context;
  root["n_inner"] = shape.hidden == 0 ? OrderedJson(nullptr) : OrderedJson(shape.hidden);
  root[activation_key] = shape.activation == Activation::gelu ? "gelu_new" : "relu2";
  root["layer_norm_epsilon"] = shape.norm_epsilon;
}

}  // namespace trireme::weights
