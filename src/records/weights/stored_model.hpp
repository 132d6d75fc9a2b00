// SPDX-License-Identifier: Apache-2.0
// Describes a model in files of any format: its shape, and for each of our parameters the files and
// byte ranges of its elements. The formats (huggingface.hpp, llmc.hpp, checkpoint_weights.hpp)
// produce this description, and code that reads weights depends only on it.
//
// 1. `tensors` has one entry for each parameter of `shape`, in registration order, with the shape
//    of the parameter table.
// 2. A tensor's extents cover its stored elements without gaps, in order.
// 3. It is plain data: one rank opens the files and checks all headers, and the other ranks receive
//    the description (pack()).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "model/config.hpp"

#include "weights/stored_type.hpp"

namespace trireme::weights {

/// Stored elements [begin, begin + count) are the bytes of `file` from `offset` on.
struct Extent {
  std::int64_t file = 0;  ///< index of StoredModel::files
  std::int64_t offset = 0;
  std::int64_t begin = 0;
  std::int64_t count = 0;
};

struct StoredTensor {
  std::string parameter = {};            ///< ours: "h.0.attn.qkv.weight"
  std::string name = {};                 ///< theirs, for messages
  std::vector<std::int64_t> shape = {};  ///< ours: [out, in]
  StoredType type = StoredType::f32;
  bool transposed = false;  ///< stored as [in, out]
  std::vector<Extent> extents = {};
  std::optional<std::uint64_t> content_hash = {};  ///< sum of element_hash of fp32 elements

  [[nodiscard]] std::int64_t elements() const { return elements_of(shape); }
  auto fields() {
    return std::tie(parameter, name, shape, type, transposed, extents, content_hash);
  }
};

/// Tokens with a role in texts, as far as the files of the model state them.
struct Roles {
  std::optional<std::int32_t> begin = {};    ///< begins a text
  std::vector<std::int32_t> ends = {};       ///< any of them ends a text
  std::optional<std::int32_t> padding = {};  ///< fills rows of a batch; only kept for exports

  /// Whether all of them are ids below `tokens`, the vocabulary size.
  [[nodiscard]] bool within(std::int64_t tokens) const;
  auto fields() { return std::tie(begin, ends, padding); }
  bool operator==(const Roles&) const = default;
};

struct StoredModel {
  std::string path = {};        ///< as given by the user, or the checkpoint found there
  std::string format = {};      ///< "huggingface", "llm.c" or "checkpoint"
  std::string shape_file = {};  ///< the file that states the sizes
  model::GptShape shape = {};
  std::vector<std::string> files = {};
  std::vector<StoredTensor> tensors = {};
  std::string tokenizer = {};        ///< text::Tokenizer::serialized(); "" if unknown
  std::string tokenizer_place = {};  ///< its source, for messages
  std::int64_t step = 0;             ///< of a checkpoint
  Roles roles = {};
  std::vector<std::string> notes = {};  ///< remarks for the user, one line each

  /// Throws UserError if the tensor has a content hash that differs from `hash`.
  void expect_hash(const StoredTensor& tensor, std::uint64_t hash) const;
  auto fields() {
    return std::tie(path, format, shape_file, shape, files, tensors, tokenizer, tokenizer_place,
                    step, roles, notes);
  }
};

}  // namespace trireme::weights
