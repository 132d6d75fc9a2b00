// SPDX-License-Identifier: Apache-2.0
// llm.c's model files: 256 int32 of header, then 16 tensors, each for all layers, with weights as
// [out, in] like ours. Source: llm.c, train_gpt2.py write_model().
//
// The token embedding has rows for a vocabulary that is rounded up; the model never uses those
// beyond its vocabulary, and they are not read.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "layout/plan.hpp"

#include "model/config.hpp"

#include "weights/stored_model.hpp"

namespace trireme::weights {

/// Of the two versions: 3 is fp32, 5 is bf16.
inline constexpr std::int32_t llmc_model_magic = 20240326;
inline constexpr std::int64_t llmc_header_bytes = 1024;
using LlmcHeader = std::array<std::int32_t, 256>;

/// A parameter of ours in the order of the file, and how many elements of no use follow it.
struct LlmcElement {
  const char* name;  ///< "qkvw"
  layout::Parameter parameter;
  std::int64_t unused = 0;
};
/// For a token embedding of `rows` rows; 0: those that a file of this shape gets.
std::vector<LlmcElement> llmc_order(const model::GptShape& shape, std::int64_t rows = 0);

/// Rows of the token embedding in the file.
std::int64_t llmc_rows(std::int64_t vocabulary);
/// Requires: a shape with biases and a tied head.
/// Whether the format can describe the model; biases may be added, as zeros.
bool is_llmc_model(const model::GptShape& shape);
LlmcHeader llmc_header(const model::GptShape& shape, StoredType type);

/// Whether the file begins as one of llm.c's model files.
bool is_llmc(const std::string& file);

/// Without the tokenizer. Throws UserError, StorageError.
StoredModel open_llmc(const std::string& file);

}  // namespace trireme::weights
