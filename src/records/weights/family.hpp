// SPDX-License-Identifier: Apache-2.0
// What a family of models is called elsewhere, as a table: the names of its tensors and of its
// sizes, and the keys of config.json that decide whether it is a model that trireme computes. A new
// family is a row of families() with its own tables; nothing else here depends on a family's name.
//
// In names, '#' stands for the number of a block.
//
// Source of GPT-2's: transformers, models/gpt2; openai/gpt-2. Of the others: transformers,
// models/llama, models/qwen3, models/nanochat.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "layout/plan.hpp"

#include "model/config.hpp"

namespace trireme::weights {

struct NameRule {
  std::string_view ours;  ///< "h.#.attn.qkv"
  /// "h.#.attn.c_attn"; or several, whose rows are ours one after the other: three of queries, keys
  /// and values, two halves.
  std::array<std::string_view, 3> theirs;
  /// Their weight is [in, out] (Conv1D), ours [out, in].
  bool transposed = false;
  /// Positions turn the other way there, so that the halves of each head of queries and of keys
  /// lie there the other way round.
  bool turns_other_way = false;
};

/// A size of the model and its key in config.json.
struct SizeRule {
  const char* key;       ///< "n_layer"
  const char* deck_key;  ///< "model.layers"
  std::int64_t model::GptShape::*size;
  std::int64_t most;
};

/// A key of config.json that must have one of these values, written as JSON, where it is there.
struct FixedRule {
  const char* key;
  std::string_view values;  ///< "a or b": the values between " or "
  bool required = false;
  const char* otherwise;  ///< what another value would mean
};

struct Family {
  model::Family kind;
  const char* model_type;    ///< of config.json
  const char* architecture;  ///< the class with a head
  /// Before the names of all tensors but the head's; files of the bare model do without.
  std::string_view prefix;
  std::span<const NameRule> names;
  /// Tensors that hold no weights (a mask that is computed), and may be there.
  std::span<const std::string_view> buffers;
  std::span<const SizeRule> sizes;
  std::span<const FixedRule> fixed;
  const char* heads_key;       ///< of sizes: that of the heads
  const char* head_width_key;  ///< null: heads divide the channels
  std::int64_t head_width;     ///< where config.json has none; 0: heads divide the channels
  std::span<const char* const> dropout_keys;
  /// Its layers have biases with any config.json; those of a model without are zero there.
  bool always_biased;
};

std::span<const Family> families();
/// The family that has a model's parts; null where none has.
const Family* find_family(const model::GptShape& shape);
/// Requires: there is one.
const Family& family_of(const model::GptShape& shape);

/// A tensor there that holds a parameter of ours ("h.3.attn.qkv.weight"), or a part of its rows.
struct TheirTensor {
  std::string name;                 ///< without the prefix: "h.3.attn.c_attn.weight"
  bool transposed = false;          ///< it lies there as [in, out]
  std::vector<std::int64_t> shape;  ///< as ours: [out, in]
  std::int64_t begin = 0;           ///< its first element of ours
  std::int64_t swapped_rows = 0;    ///< so many rows, and so many more, are exchanged; 0: none

  [[nodiscard]] std::int64_t elements() const;
};
std::vector<TheirTensor> their_tensors(const Family& family,
                                       const model::GptShape& shape,
                                       const layout::Parameter& parameter);
/// Without the prefix.
std::string head_name(const Family& family);

/// Whether `name` is `pattern` with a number for '#'.
bool matches(std::string_view pattern, std::string_view name);

}  // namespace trireme::weights
