// SPDX-License-Identifier: Apache-2.0
// Opens model folders of Hugging Face transformers: config.json, model.safetensors or its shards
// with model.safetensors.index.json, and the tokenizer's files.
//
// 1. config.json must describe a model that trireme computes. A value that is not supported is
//    refused with its key. Keys that no reader of the family uses are reported.
// 2. Every parameter must be present with its shape, in a supported dtype. Other tensors are
//    refused, except for buffers that the family names and a head that repeats a tied embedding bit
//    by bit. All errors are reported at once.
// 3. Only headers are read, and the tensors that rule 2 compares.
#pragma once

#include <string>
#include <vector>

#include "model/config.hpp"

#include "text/json_file.hpp"

#include "weights/stored_model.hpp"

namespace trireme::weights {

/// Whether the directory contains a file of such a folder.
bool is_huggingface(const std::string& directory);

/// Does not read the tokenizer. Throws UserError with all errors found, StorageError.
StoredModel open_huggingface(const std::string& directory);

/// Keys of safetensors' metadata in exports begin with this and end with a parameter of ours; the
/// value is the parameter's content hash, with which readers compare it.
inline const std::string hash_key = "trireme.hash.";

struct ConfigContent {
  model::GptShape shape = {};
  Roles roles = {};
  std::vector<std::string> notes = {};  ///< about keys without effect
};
/// Throws UserError.
ConfigContent read_config(const text::FileText& file);
/// Adds the roles of generation_config.json, which replace those of config.json.
void read_generation_config(const text::FileText& file, ConfigContent& content);

/// The text of config.json; `dtype` is "float32" or "bfloat16".
std::string config_json(const model::GptShape& shape,
                        const Roles& roles = {},
                        const char* dtype = "float32");
std::string generation_config_json(const Roles& roles);

}  // namespace trireme::weights
