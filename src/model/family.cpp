// SPDX-License-Identifier: Apache-2.0
#include "model/family.hpp"

namespace trireme::model {

FamilyParts parts_of(Family family) {
  switch (family) {
    case Family::gpt2:
      return {};
    case Family::llama:
      return {.norm = Norm::rms_norm,
              .activation = Activation::swiglu,
              .positions = Positions::rotary,
              .rotary_theta = 500000,
              .bias = false,
              .tied_head = false};
  }
  return {};
}

/// GPT-2's: Radford et al. 2019, table 2, with the heads of the published checkpoints (64 channels
/// each) and the vocabulary of 50257 rounded up to a multiple of 128. Llama 3.2's: config.json of
/// the published checkpoint.
PresetSizes sizes_of(Preset preset) {
  switch (preset) {
    case Preset::none:
      return {};
    case Preset::gpt2_124m:
      return {.layers = 12, .heads = 12, .channels = 768, .context = 1024, .vocabulary = 50304};
    case Preset::gpt2_350m:
      return {.layers = 24, .heads = 16, .channels = 1024, .context = 1024, .vocabulary = 50304};
    case Preset::gpt2_774m:
      return {.layers = 36, .heads = 20, .channels = 1280, .context = 1024, .vocabulary = 50304};
    case Preset::gpt2_1558m:
      return {.layers = 48, .heads = 25, .channels = 1600, .context = 1024, .vocabulary = 50304};
    case Preset::llama32_1b:
      return {.layers = 16,
              .heads = 32,
              .channels = 2048,
              .context = 131072,
              .vocabulary = 128256,
              .key_value_heads = 8,
              .mlp_channels = 8192,
              .family = Family::llama,
              .tied_head = true,
              .rotary_factor = 32};
  }
  return {};
}

}  // namespace trireme::model
