// SPDX-License-Identifier: Apache-2.0
// Opens model folders of Hugging Face transformers: config.json, model.safetensors or its shards
// with model.safetensors.index.json, and the tokenizer's files.
//
// 1. config.json must describe a model that trireme computes. A value that is not supported is
//    refused with its key.
// 2. Every parameter must be present with its shape, in a supported dtype. Other tensors are
//    refused, except for buffers that the family names and a head that repeats a tied embedding bit
//    by bit. All errors are reported at once.
// 3. Only headers are read, and the tensors that rule 2 compares.
#pragma once

#include <string>

#include "model/config.hpp"

#include "weights/stored_model.hpp"

namespace trireme::weights {

/// Whether the directory contains a file of such a folder.
bool is_huggingface(const std::string& directory);

/// Does not read the tokenizer. Throws UserError with all errors found, StorageError.
StoredModel open_huggingface(const std::string& directory);

/// Values of config.json that are not part of the model's shape.
struct ConfigFacts {
  const char* dtype = "float32";                ///< "float32" or "bfloat16"
  std::int64_t end_of_text = -1;                ///< that begins a text; -1: none
  std::vector<std::int32_t> ends_of_text = {};  ///< that end one
  double dropout = 0;
};
/// The text of config.json.
std::string config_json(const model::GptShape& shape, const ConfigFacts& facts);
std::string generation_config_json(const ConfigFacts& facts);

/// The shape described by `bytes`, the content of the config.json at `path`. Throws UserError.
model::GptShape shape_of_config(const std::string& path, const std::string& bytes);

}  // namespace trireme::weights
