// SPDX-License-Identifier: Apache-2.0
// Families name the parts of a model, presets the sizes of published models. Each is a row of a
// table in family.cpp. Every combination of the keys is a valid model.
//
// 1. Both only fill keys that are auto or 0 (resolve() in config.hpp). A checkpoint contains the
//    resolved shape, never the name of a family or preset.
// 2. A preset names its family. `family` together with a preset overrides parts but not sizes.
// 3. The sources of all numbers are in family.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "base/key.hpp"

#include "model/shape.hpp"

namespace trireme::model {

enum class Family : std::uint8_t { gpt2, llama, qwen2, qwen3, nanochat };
enum class Preset : std::uint8_t {
  none,
  gpt2_124m,
  gpt2_350m,
  gpt2_774m,
  gpt2_1558m,
  llama32_1b,
  qwen3_06b,
  nanochat_d12,
  nanochat_d20
};

/// A model without sizes: the values of keys for parts that are auto.
GptShape parts_of(Family family);

/// The values of keys for sizes that are not given; 0: not defined.
struct PresetSizes {
  std::int64_t layers = 0, heads = 0, channels = 0, context = 0, vocabulary = 0;
  std::int64_t key_value_heads = 0, head_channels = 0, mlp_channels = 0;
  Family family = Family::gpt2;
  std::optional<bool> tied_head{};  ///< if the model differs from its family
  double rotary_factor = 1;
};
PresetSizes sizes_of(Preset preset);

}  // namespace trireme::model

template <>
struct trireme::EnumNames<trireme::model::Preset> {
  using enum model::Preset;
  static constexpr std::pair<model::Preset, const char*> table[] = {{none, "none"},
                                                                    {gpt2_124m, "gpt2-124m"},
                                                                    {gpt2_350m, "gpt2-350m"},
                                                                    {gpt2_774m, "gpt2-774m"},
                                                                    {gpt2_1558m, "gpt2-1558m"},
                                                                    {llama32_1b, "llama3.2-1b"},
                                                                    {qwen3_06b, "qwen3-0.6b"},
                                                                    {nanochat_d12, "nanochat-d12"},
                                                                    {nanochat_d20, "nanochat-d20"}};
};
