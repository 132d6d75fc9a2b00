// SPDX-License-Identifier: Apache-2.0
// Reads and describes model files of llm.c: a header of 256 int32, then 16 tensors, each for all
// layers, with weights as [out, in] like ours. Source: llm.c, train_gpt2.py write_model().
//
// The token embedding has unused rows up to a rounded vocabulary, which are not read.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "layout/plan.hpp"

#include "model/config.hpp"

#include "weights/stored_model.hpp"

namespace trireme::weights {

/// Magic number of both versions: 3 is fp32, 5 is bf16.
inline constexpr std::int32_t llmc_model_magic = 20240326;
inline constexpr std::int64_t llmc_header_bytes = 1024;
using LlmcHeader = std::array<std::int32_t, 256>;

/// One of our parameters in the order of the file, and the number of unused elements after it.
struct LlmcElement {
  const char* name;  ///< "qkvw"
  layout::Parameter parameter;
  std::int64_t unused = 0;
};
/// For a token embedding of `rows` rows; 0: llmc_rows(). Requires: no parts_beyond_llmc().
std::vector<LlmcElement> llmc_order(const model::GptShape& shape, std::int64_t rows = 0);

/// Rows of the token embedding in the file.
std::int64_t llmc_rows(std::int64_t vocabulary);

/// What of `shape` the format cannot express ("model.norm: rms_norm"); absent biases become zeros.
std::vector<std::string> parts_beyond_llmc(const model::GptShape& shape);
LlmcHeader llmc_header(const model::GptShape& shape, StoredType type);

/// Whether the file begins like a model file of llm.c.
bool is_llmc(const std::string& file);

/// Does not read the tokenizer. Throws UserError, StorageError.
StoredModel open_llmc(const std::string& file);

}  // namespace trireme::weights
