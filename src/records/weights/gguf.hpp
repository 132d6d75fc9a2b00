// SPDX-License-Identifier: Apache-2.0
// Describes models for GGUF files, which llama.cpp and programs built on it read: the names of
// tensors, and the header with sizes and vocabulary. Format: ggml-org/ggml/docs/gguf.md, version 3;
// keys and names: ggml-org/llama.cpp/gguf-py/gguf/constants.py.
//
// 1. Norms, biases and position embeddings are always fp32, as llama.cpp expects. A matrix whose
//    rows cannot be divided into the blocks of Q8_0 is fp16.
// 2. Rows of the vocabulary without a token are unused tokens: there are as many tokens as rows.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "weights/family.hpp"
#include "weights/stored_model.hpp"
#include "weights/tensor_files.hpp"

namespace trireme::weights {

/// The architectures of llama.cpp, with its names of tensors.
std::span<const Family> gguf_families();

struct GgufContent {
  const Family* family = nullptr;
  model::GptShape shape = {};
  StoredType type = StoredType::f32;  ///< of matrices
  Roles roles = {};
  std::string tokenizer = {};              ///< text::Tokenizer::serialized(); "": no vocabulary
  std::vector<TensorOutput> tensors = {};  ///< in the order of their data, of any type
  std::vector<std::pair<std::string, std::string>> facts = {};  ///< additional keys with texts
};
/// The type in which a tensor is stored if `wanted` is the type of matrices.
StoredType gguf_type(const TheirTensor& tensor, StoredType wanted);

/// Writes the whole file, with tensors of `model`. Throws UserError if llama.cpp has no
/// pre-tokenizer that splits texts as the tokenizer does.
void write_gguf(GgufContent content, const StoredModel& model, files::Descriptor& file);

}  // namespace trireme::weights
