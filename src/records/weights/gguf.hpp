// SPDX-License-Identifier: Apache-2.0
// Describes models for GGUF files, which llama.cpp and programs built on it read: the names of
// tensors, and the header with sizes and vocabulary. Format: docs/gguf.md of ggml-org/ggml, version
// 3; keys and names: gguf-py/gguf/constants.py of ggml-org/llama.cpp.
//
// 1. Norms, biases and position embeddings are always fp32, as llama.cpp expects. A matrix whose
//    rows cannot be divided into the blocks of Q8_0 is fp16.
// 2. Rows of the vocabulary without a token are unused tokens, so tokens and rows have equal
//    numbers.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "weights/family.hpp"
#include "weights/stored_model.hpp"
#include "weights/tensor_writer.hpp"

namespace trireme::weights {

inline constexpr std::int64_t gguf_alignment = 32;

/// The architectures of llama.cpp, with its names of tensors.
std::span<const Family> gguf_families();

/// The type in which a tensor is stored if `wanted` is the type of matrices.
StoredType gguf_type(const TheirTensor& tensor, StoredType wanted);

/// The divisors of frequencies (tensor rope_freqs.weight) for positions that are scaled as in Llama
/// 3.1; empty for others.
std::vector<float> gguf_rotary_divisors(const model::GptShape& shape);

struct GgufContent {
  const Family* family = nullptr;
  model::GptShape shape = {};
  StoredType type = StoredType::f32;  ///< of matrices
  Roles roles = {};
  std::string tokenizer = {};              ///< text::Tokenizer::serialized(); "": no vocabulary
  std::vector<TensorOutput> tensors = {};  ///< in the order of their data
  /// More keys, with text as value.
  std::vector<std::pair<std::string, std::string>> facts = {};
};
/// The file up to the data of the first tensor; each tensor begins at a multiple of gguf_alignment.
/// Throws UserError if llama.cpp cuts texts in no way that the tokenizer does.
std::string gguf_header(const GgufContent& content);

}  // namespace trireme::weights
