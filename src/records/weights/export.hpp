// SPDX-License-Identifier: Apache-2.0
// Exports a model to files that other programs read, one tensor at a time.
//
// 1. Memory holds one block of a tensor, never the whole model.
// 2. The directory is new and appears only when complete (files/new_directory.hpp). Weights of a
//    checkpoint are compared with their content hashes; if one differs, no file is left.
// 3. fp32 values are the master weights, bit by bit; bf16 and fp16 are rounded to nearest even.
// 4. The same checkpoint gives the same bytes.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/key.hpp"

#include "weights/stored_type.hpp"

namespace trireme::weights {

enum class ExportFormat : std::uint8_t { huggingface, gguf, llmc };

/// Which rows of the token embedding are exported. A model may have more rows than its tokenizer
/// has tokens. The additional rows take part in the softmax, so only an export of all rows
/// reproduces the model's probabilities.
enum class ExportRows : std::uint8_t { model, tokenizer };

struct ExportRequest {
  std::string source;      ///< a path as in open_model()
  std::int64_t step = -1;  ///< of the checkpoint; -1: the newest
  ExportFormat format = ExportFormat::huggingface;
  StoredType type = StoredType::f32;  ///< f32 or bf16; in a GGUF file also f16 or q8_0
  ExportRows rows = ExportRows::model;
  std::string output;
  std::int64_t shard_bytes = 5'000'000'000;  ///< at most, for a file of several tensors
};

struct Exported {
  std::string source;              ///< the path of the model or checkpoint
  std::vector<std::string> files;  ///< the files that contain weights
  std::int64_t parameters = 0, bytes = 0;
  std::vector<std::string> notes;  ///< remarks for the user, one line each
};

/// Throws UserError, StorageError.
Exported export_model(const ExportRequest& request);

}  // namespace trireme::weights

template <>
struct trireme::EnumNames<trireme::weights::ExportFormat> {
  using enum weights::ExportFormat;
  static constexpr std::pair<weights::ExportFormat, const char*> table[] = {
      {huggingface, "huggingface"}, {gguf, "gguf"}, {llmc, "llm.c"}};
};
