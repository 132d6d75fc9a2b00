// SPDX-License-Identifier: Apache-2.0
// Tables that describe each model family in the files of another program: the names of its tensors,
// and the parts that its files can express. A new family is a row of families() with its names; its
// keys of config.json are in huggingface_config.cpp.
//
// In names, '#' stands for the number of a block.
//
// Sources: transformers, models/{gpt2,llama,mistral,qwen2,qwen3,nanochat}; openai/gpt-2.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "layout/plan.hpp"

#include "model/config.hpp"

#include "weights/stored_type.hpp"

namespace trireme::weights {

/// The order of a query or key head's rows in a file, compared with ours: as they are; the two
/// halves exchanged, because the file's rotary positions rotate in the opposite direction; or the
/// two halves interleaved, because it rotates neighbouring channels.
enum class HeadRows : std::uint8_t { ours, swapped, interleaved };

struct NameRule {
  std::string_view ours;  ///< "h.#.attn.qkv"
  /// "h.#.attn.c_attn"; or several tensors whose rows are concatenated in ours: queries, keys and
  /// values, or the two halves of a gated layer.
  std::array<std::string_view, 3> theirs;
  bool transposed = false;              ///< their weight is [in, out] (Conv1D), ours [out, in]
  HeadRows head_rows = HeadRows::ours;  ///< of queries and keys
};

/// The layers that can have an attention window.
enum class Windows : std::uint8_t { none, all_layers, some_layers };

struct Family {
  model::Family kind;        ///< its parts, except as stated below
  const char* model_type;    ///< of config.json
  const char* architecture;  ///< the class with a head
  /// Precedes the names of all tensors except the head's; absent in files of a model without head.
  std::string_view prefix;
  std::span<const NameRule> names;
  /// Tensors that may be present but contain no weights, such as a computed mask.
  std::span<const std::string_view> buffers;
  Windows windows = Windows::none;
  bool may_have_biases = false;  ///< in all linear layers
  bool always_biased = false;    ///< biases are zero if the model has none
  bool may_square_relu = false;  ///< instead of GELU
  bool scales_as_llama3 = true;  ///< Llama 3 scaling of rotary positions
};

/// The families of config.json.
std::span<const Family> families();
/// The parts of `shape` that the family cannot express: "model.qk_norm: none", …
std::vector<std::string> parts_beyond(const Family& family, const model::GptShape& shape);
/// The first family that can express all parts of `shape`; null if there is none.
const Family* find_family(const model::GptShape& shape, std::span<const Family> among = families());
/// Like find_family(), but throws UserError for `file` with the parts that the nearest family
/// cannot express. `format` names the file format.
const Family& family_of(const model::GptShape& shape,
                        std::string_view file = "",
                        std::string_view format = "config.json of transformers",
                        std::span<const Family> among = families());

/// A tensor of the file with one of our parameters ("h.3.attn.qkv.weight"), or some of its rows.
struct TheirTensor {
  std::string name;                 ///< without the prefix: "h.3.attn.c_attn.weight"
  bool transposed = false;          ///< stored as [in, out]
  std::vector<std::int64_t> shape;  ///< as ours: [out, in]
  std::int64_t begin = 0;           ///< index of its first element in our parameter
  HeadRows head_rows = HeadRows::ours;
  std::int64_t rows_of_head = 0;

  [[nodiscard]] std::int64_t elements() const { return elements_of(shape); }
  /// The row of ours, from `begin` on, that is stored as row `stored`.
  [[nodiscard]] std::int64_t our_row(std::int64_t stored) const;
};
std::vector<TheirTensor> their_tensors(const Family& family,
                                       const model::GptShape& shape,
                                       const layout::Parameter& parameter);
/// Whether `name` is `pattern` with a number for '#'.
bool matches(std::string_view pattern, std::string_view name);

}  // namespace trireme::weights
