// SPDX-License-Identifier: Apache-2.0
// Folders of weights as other programs write them, made by hand: whole, and with one thing wrong.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "base/random.hpp"

#include "model/layers.hpp"

#include "support/scratch_directory.hpp"
#include "weights/family.hpp"

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

/// Element `i` of our parameter number `p`, in our order: another value for each.
inline float value_of(std::size_t p, std::int64_t i) {
  const auto words = philox(RandomKey::of(99, Draw::synthetic),
                            static_cast<std::uint64_t>(p) << 32U | static_cast<std::uint64_t>(i));
  return static_cast<float>(static_cast<std::int32_t>(words.w[0])) * 0x1p-31F;
}

inline std::string bytes_of(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

/// All tensors of a model by their names there, turned where they are turned there.
inline Tensors gpt2_tensors(const model::GptShape& shape) {
  Tensors tensors;
  const auto table = model::parameter_table(shape);
  for (std::size_t p = 0; p < table.size(); ++p) {
    const TheirName their = their_name(family_of(shape), table[p].name);
    const std::int64_t out = table[p].shape[0], elements = table[p].elements(), in = elements / out;
    std::vector<float> values(static_cast<std::size_t>(elements));
    for (std::int64_t i = 0; i < elements; ++i)
      values[static_cast<std::size_t>(their.transposed ? i % in * out + i / in : i)] =
          value_of(p, i);
    auto extents = table[p].shape;
    if (their.transposed)
      std::swap(extents[0], extents[1]);
    const std::string prefix = table[p].name == "head.weight" ? "" : "transformer.";
    tensors[prefix + their.name] = {"F32", extents, bytes_of(values)};
  }
  return tensors;
}

inline std::string gpt2_config(const model::GptShape& shape) {
  return fmt::format(
      R"({{"model_type": "gpt2", "n_layer": {}, "n_head": {}, "n_embd": {}, "n_positions": {},
 "vocab_size": {}, "activation_function": "gelu_new", "tie_word_embeddings": {}}})",
      shape.layers, shape.heads, shape.channels, shape.context, shape.vocabulary, shape.tied_head);
}

/// A folder of the tiny model, which a test may change before it is written.
struct Folder {
  explicit Folder(const model::GptShape& given = tiny_shape())
      : shape(given), config(gpt2_config(given)), tensors(gpt2_tensors(given)) {}

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

/// All findings as one text; "" when nothing was wrong.
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
