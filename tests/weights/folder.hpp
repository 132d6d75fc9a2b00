// SPDX-License-Identifier: Apache-2.0
// Hand-made weight folders in the formats of other programs: valid, and with one error.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "base/random.hpp"

#include "model/layers.hpp"

#include "weights/family.hpp"
#include "weights/huggingface.hpp"

#include "support/scratch_directory.hpp"

namespace trireme::weights {

/// The bytes of a file: length, header, data.
inline std::string safetensors_of(const std::string& header, const std::string& data) {
  const std::uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + header + data;
}

struct Tensor {
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::string bytes;
};
using Tensors = std::map<std::string, Tensor>;

inline std::string safetensors_of(const Tensors& tensors) {
  std::string header = "{", data;
  for (const auto& [name, tensor] : tensors) {
    header +=
        fmt::format(R"({}"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                    header.size() > 1 ? "," : "", name, tensor.dtype, fmt::join(tensor.shape, ","),
                    data.size(), data.size() + tensor.bytes.size());
    data += tensor.bytes;
  }
  return safetensors_of(header + "}", data);
}

inline model::GptShape tiny_shape() {
  return {.layers = 2, .heads = 2, .channels = 6, .context = 5, .vocabulary = 9};
}

/// Element `i` of our parameter number `p`, in our order; each element has another value.
inline float value_of(std::size_t p, std::int64_t i) {
  const auto words = philox(RandomKey::of(99, Draw::synthetic),
                            static_cast<std::uint64_t>(p) << 32U | static_cast<std::uint64_t>(i));
  return static_cast<float>(static_cast<std::int32_t>(words.w[0])) * 0x1p-31F;
}

inline std::string bytes_of(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

/// Two heads that share one of keys and values, and an MLP of an odd width.
inline model::GptShape tiny_llama() {
  return {.layers = 2,
          .heads = 2,
          .channels = 8,
          .context = 5,
          .vocabulary = 9,
          .bias = false,
          .tied_head = false,
          .grouped_heads = 1,
          .hidden = 7,
          .norm = model::Norm::rms_norm,
          .norm_epsilon = 1e-6,
          .activation = model::Activation::swiglu,
          .positions = model::Positions::rotary,
          .rotary_theta = 500000,
          .rotary_scaling = {.factor = 8, .original_context = 64}};
}

/// Heads wider than the stream, and normalized.
inline model::GptShape tiny_qwen3() {
  model::GptShape shape = tiny_llama();
  shape.head_width = 6;
  shape.qk_norm = model::QkNorm::with_gain;
  shape.rotary_theta = 1000000;
  shape.rotary_scaling = {};
  return shape;
}

/// A Llama in which all layers have a window, without scaled positions.
inline model::GptShape tiny_mistral() {
  model::GptShape shape = tiny_llama();
  shape.rotary_scaling = {};
  shape.attention_window = 3;
  return shape;
}

/// Biases in queries, keys and values, and positions scaled with YaRN.
inline model::GptShape tiny_qwen2() {
  model::GptShape shape = tiny_llama();
  shape.qkv_bias = true;
  shape.rotary_scaling = {.factor = 4,
                          .original_context = 64,
                          .type = ops::RotaryScalingType::yarn,
                          .attention_factor = model::yarn_attention_factor(4)};
  return shape;
}

inline model::GptShape tiny_nanochat() {
  model::GptShape shape = tiny_llama();
  shape.norm_gain = false;
  shape.embedding_norm = true;
  shape.qk_norm = model::QkNorm::without_gain;
  shape.activation = model::Activation::squared_relu;
  shape.rotary_theta = 100000;
  shape.rotary_scaling = {};
  shape.logit_softcap = 15;
  return shape;
}

/// All tensors of a model with the names, splits and orientation of its format.
inline Tensors tensors_of(const model::GptShape& shape) {
  Tensors tensors;
  const Family& family = family_of(shape);
  const auto table = model::parameter_table(shape);
  for (std::size_t p = 0; p < table.size(); ++p)
    for (const TheirTensor& their : their_tensors(family, shape, table[p])) {
      const std::int64_t out = their.shape[0], elements = their.elements(), in = elements / out;
      std::vector<float> values(static_cast<std::size_t>(elements));
      for (std::int64_t i = 0; i < elements; ++i) {
        const std::int64_t row = i / in;
        const std::int64_t place = their.transposed ? i % in * out + row : i;
        values[static_cast<std::size_t>(place)] =
            value_of(p, their.begin + their.our_row(row) * in + i % in);
      }
      auto extents = their.shape;
      if (their.transposed)
        std::swap(extents[0], extents[1]);
      const std::string_view prefix = table[p].name == "head.weight" ? "" : family.prefix;
      tensors[std::string(prefix) + their.name] = {"F32", extents, bytes_of(values)};
    }
  return tensors;
}

inline std::string gpt2_config(const model::GptShape& shape) {
  return fmt::format(
      R"({{"model_type": "gpt2", "n_layer": {}, "n_head": {}, "n_embd": {}, "n_positions": {},
 "vocab_size": {}, "activation_function": "gelu_new", "tie_word_embeddings": {}}})",
      shape.layers, shape.heads, shape.channels, shape.context, shape.vocabulary, shape.tied_head);
}

/// With the newer spelling of keys; config_json writes the older one.
inline std::string llama_config(const model::GptShape& shape) {
  const auto& s = shape.rotary_scaling;
  return fmt::format(
      R"({{"model_type": "llama", "num_hidden_layers": {}, "num_attention_heads": {},
 "num_key_value_heads": {}, "hidden_size": {}, "intermediate_size": {},
 "max_position_embeddings": {}, "vocab_size": {}, "hidden_act": "silu", "rms_norm_eps": {},
 "rope_parameters": {{"rope_type": "llama3", "rope_theta": {}, "factor": {},
  "low_freq_factor": {}, "high_freq_factor": {}, "original_max_position_embeddings": {}}},
 "tie_word_embeddings": {}, "attention_bias": {}, "mlp_bias": {}}})",
      shape.layers, shape.heads, shape.key_value_heads(), shape.channels, shape.mlp_channels(),
      shape.context, shape.vocabulary, shape.norm_epsilon, shape.rotary_theta, s.factor,
      s.low_freq_factor, s.high_freq_factor, s.original_context, shape.tied_head, shape.bias,
      shape.bias);
}

inline std::string qwen3_config(const model::GptShape& shape) {
  return fmt::format(
      R"({{"model_type": "qwen3", "num_hidden_layers": {}, "num_attention_heads": {},
 "num_key_value_heads": {}, "head_dim": {}, "hidden_size": {}, "intermediate_size": {},
 "max_position_embeddings": {}, "vocab_size": {}, "hidden_act": "silu", "rms_norm_eps": {},
 "rope_parameters": {{"rope_type": "default", "rope_theta": {}}}, "tie_word_embeddings": {},
 "attention_bias": false, "use_sliding_window": false, "sliding_window": null,
 "layer_types": ["full_attention", "full_attention"]}})",
      shape.layers, shape.heads, shape.key_value_heads(), shape.head_channels(), shape.channels,
      shape.mlp_channels(), shape.context, shape.vocabulary, shape.norm_epsilon, shape.rotary_theta,
      shape.tied_head);
}

inline std::string nanochat_config(const model::GptShape& shape) {
  return fmt::format(
      R"({{"model_type": "nanochat", "num_hidden_layers": {}, "num_attention_heads": {},
 "num_key_value_heads": {}, "hidden_size": {}, "intermediate_size": {},
 "max_position_embeddings": {}, "vocab_size": {}, "hidden_act": "relu2", "rms_norm_eps": {},
 "rope_parameters": {{"rope_type": "default", "rope_theta": {}}}, "tie_word_embeddings": {},
 "attention_bias": false, "final_logit_softcapping": {}}})",
      shape.layers, shape.heads, shape.key_value_heads(), shape.channels, shape.mlp_channels(),
      shape.context, shape.vocabulary, shape.norm_epsilon, shape.rotary_theta, shape.tied_head,
      shape.logit_softcap);
}

/// config.json of a model of any family.
inline std::string config_of(const model::GptShape& shape) {
  const std::string_view type = family_of(shape).model_type;
  return type == "gpt2"       ? gpt2_config(shape)
         : type == "llama"    ? llama_config(shape)
         : type == "qwen3"    ? qwen3_config(shape)
         : type == "nanochat" ? nanochat_config(shape)
                              : config_json(shape);
}

/// The shape that a config.json with this text describes.
inline model::GptShape shape_of_config(const std::string& text) {
  return read_config({"c", text}).shape;
}

/// The folder of the tiny model; a test may change it before it is written.
struct Folder {
  explicit Folder(const model::GptShape& given = tiny_shape())
      : shape(given), config(weights::config_of(given)), tensors(tensors_of(given)) {}

  const std::string& write() const {
    test::write_bytes(directory / "config.json", config);
    test::write_bytes(directory / "model.safetensors", safetensors_of(tensors));
    return directory.path();
  }

  test::ScratchDirectory directory;
  model::GptShape shape;
  std::string config;
  Tensors tensors;
};

/// All error messages as one text; "" if there are none.
inline std::string mistakes_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

inline std::string replaced(std::string text, std::string_view what, std::string_view by) {
  const auto at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return at == std::string::npos ? text : text.replace(at, what.size(), by);
}

}  // namespace trireme::weights
