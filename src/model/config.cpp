// SPDX-License-Identifier: Apache-2.0
#include "model/config.hpp"

namespace trireme::model {
namespace {

struct Sizes {
  std::int64_t layers = 0, heads = 0, channels = 0, context = 0, vocabulary = 0;
};

/// Radford et al. 2019, table 2, with the heads of the published checkpoints (64 channels each) and
/// the vocabulary of 50257 rounded up to a multiple of 128.
Sizes sizes_of(Preset preset) {
  switch (preset) {
    case Preset::none:
      return {};
    case Preset::gpt2_124m:
      return {12, 12, 768, 1024, 50304};
    case Preset::gpt2_350m:
      return {24, 16, 1024, 1024, 50304};
    case Preset::gpt2_774m:
      return {36, 20, 1280, 1024, 50304};
    case Preset::gpt2_1558m:
      return {48, 25, 1600, 1024, 50304};
  }
  return {};
}

}  // namespace

GptShape resolve(const ModelConfig& config) {
  const Sizes preset = sizes_of(config.preset);
  const auto pick = [](std::int64_t given, std::int64_t otherwise) {
    return given != 0 ? given : otherwise;
  };
  return {.layers = pick(config.layers, preset.layers),
          .heads = pick(config.heads, preset.heads),
          .channels = pick(config.channels, preset.channels),
          .context = pick(config.context, preset.context),
          .vocabulary = pick(config.vocabulary, preset.vocabulary),
          .bias = config.bias,
          .dropout = config.dropout,
          .tied_head = config.tied_head,
          .recompute = config.recompute};
}

}  // namespace trireme::model
