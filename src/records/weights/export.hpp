// SPDX-License-Identifier: Apache-2.0
// Weights out: a model as the files that other programs read, streamed tensor by tensor.
//
// 1. Of the model there is in memory one block, or one matrix where it is stored turned
//    (Conv1D), never the whole.
// 2. The directory is new, and whole or not there (files/new_directory.hpp). A checkpoint's weights
//    are compared with their content hashes as they are read; after damage no file is left.
// 3. fp32 is what the run's masters are, bit by bit; bf16 is rounded to nearest even.
// 4. The same checkpoint gives the same bytes.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/key.hpp"

#include "weights/stored_type.hpp"

namespace trireme::weights {

enum class ExportFormat : std::uint8_t { huggingface, llmc };

/// Which rows of the token embedding leave. A model may have more than its tokenizer has tokens;
/// those are rows of the softmax like all others, and only with all of them the logits' softmax is
/// the model's own.
enum class ExportRows : std::uint8_t { model, tokenizer };

struct ExportRequest {
  std::string source;      ///< what open_model() takes
  std::int64_t step = -1;  ///< of the checkpoint in a run directory; -1: the newest
  ExportFormat format = ExportFormat::huggingface;
  StoredType type = StoredType::f32;  ///< f32 or bf16
  ExportRows rows = ExportRows::model;
  std::string output;
  /// A safetensors file grows no larger, unless one tensor is.
  std::int64_t shard_bytes = 5'000'000'000;
};

struct Exported {
  std::string source;              ///< the checkpoint, in a run directory
  std::vector<std::string> files;  ///< those with weights
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
      {huggingface, "huggingface"}, {llmc, "llm.c"}};
};
template <>
struct trireme::EnumNames<trireme::weights::ExportRows> {
  using enum weights::ExportRows;
  static constexpr std::pair<weights::ExportRows, const char*> table[] = {{model, "model"},
                                                                          {tokenizer, "tokenizer"}};
};
