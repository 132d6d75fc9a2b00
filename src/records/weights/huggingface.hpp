// SPDX-License-Identifier: Apache-2.0
// Folders of Hugging Face's transformers: config.json, model.safetensors or its shards with
// model.safetensors.index.json, and the tokenizer's files.
//
// 1. config.json must describe a model that trireme computes: another architecture, activation or
//    epsilon is refused by its key.
// 2. Every parameter must be there with its shape, in a dtype that is read; nothing else may be,
//    but for buffers that the family names and a head that repeats a tied embedding bit by bit.
//    All that is wrong is reported at once.
// 3. Nothing but headers is read, and what rule 2 compares.
#pragma once

#include <string>

#include "model/config.hpp"

#include "weights/stored_model.hpp"

namespace trireme::weights {

/// Whether the directory looks like such a folder.
bool is_huggingface(const std::string& directory);

/// Without the tokenizer. Throws UserError with all findings, StorageError.
StoredModel open_huggingface(const std::string& directory);

/// What else config.json holds.
struct ConfigFacts {
  const char* dtype = "float32";  ///< "float32" or "bfloat16"
  std::int64_t end_of_text = -1;  ///< -1: none
  double dropout = 0;
};
/// The text of config.json.
std::string config_json(const model::GptShape& shape, const ConfigFacts& facts);
std::string generation_config_json(const ConfigFacts& facts);

/// The shape that `bytes`, those of the config.json at `path`, describe. Throws UserError.
model::GptShape shape_of_config(const std::string& path, const std::string& bytes);

}  // namespace trireme::weights
