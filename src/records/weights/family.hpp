// SPDX-License-Identifier: Apache-2.0
// Tables that describe each model family in Hugging Face files: the names of its tensors and sizes,
// and the keys of config.json that decide whether trireme can compute the model. A new family is a
// row of families() with its own tables; no other code depends on the name of a family.
//
// In names, '#' stands for the number of a block.
//
// Sources: transformers, models/gpt2, models/llama, models/qwen3, models/nanochat; openai/gpt-2.
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
  /// "h.#.attn.c_attn"; or several tensors whose rows are concatenated in ours: queries, keys and
  /// values, or the two halves of a gated layer.
  std::array<std::string_view, 3> theirs;
  /// Their weight is [in, out] (Conv1D), ours [out, in].
  bool transposed = false;
  /// Their rotary positions rotate in the opposite direction, so the two halves of each query and
  /// key head are stored in exchanged order.
  bool inverse_rotation = false;
};

/// A size of the model and its key in config.json.
struct SizeRule {
  const char* key;       ///< "n_layer"
  const char* deck_key;  ///< "model.layers"
  std::int64_t model::GptShape::*size;
  std::int64_t most;
};

/// A key of config.json that must have one of these values (written as JSON) if it is present.
struct FixedRule {
  const char* key;
  std::string_view values;  ///< "a or b": the values between " or "
  bool required = false;
  const char* otherwise;  ///< why other values are refused, for messages
};

struct Family {
  model::Family kind;
  const char* model_type;    ///< of config.json
  const char* architecture;  ///< the class with a head
  /// Precedes the names of all tensors except the head's; absent in files of a model without head.
  std::string_view prefix;
  std::span<const NameRule> names;
  /// Tensors that may be present but contain no weights, such as a computed mask.
  std::span<const std::string_view> buffers;
  std::span<const SizeRule> sizes;
  std::span<const FixedRule> fixed;
  const char* heads_key;       ///< the key of the number of heads
  const char* head_width_key;  ///< null: channels / heads
  std::int64_t head_width;     ///< default; 0: channels / heads
  std::span<const char* const> dropout_keys;
  /// Files of this family always contain biases; they are zero if the model has none.
  bool always_biased;
};

std::span<const Family> families();
/// The family with the parts of `shape`; null if there is none.
const Family* find_family(const model::GptShape& shape);
/// The same. Requires that there is one.
const Family& family_of(const model::GptShape& shape);

/// A tensor of the file that contains one of our parameters ("h.3.attn.qkv.weight"), or part of its
/// rows.
struct TheirTensor {
  std::string name;                 ///< without the prefix: "h.3.attn.c_attn.weight"
  bool transposed = false;          ///< stored as [in, out]
  std::vector<std::int64_t> shape;  ///< as ours: [out, in]
  std::int64_t begin = 0;           ///< index of its first element in our parameter
  std::int64_t swapped_rows = 0;    ///< swap consecutive groups of N rows; 0: do not

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
