// SPDX-License-Identifier: Apache-2.0
#include "model/family.hpp"

namespace trireme::model {

/// GPT-2: Radford et al. 2019. Llama: Touvron et al. 2023, with Llama 3's theta. Qwen2: arXiv
/// 2407.10671, section 2.2, and Qwen3: arXiv 2505.09388, section 2, both with config.json of the
/// published checkpoints. nanochat: github.com/karpathy/nanochat, nanochat/gpt.py, as in
/// NanoChatForCausalLM of transformers, without the later value embeddings, residual scalars,
/// smear, backout and windows. Its epsilon is that of fp32, PyTorch's default for norms.
GptShape parts_of(Family family) {
  switch (family) {
    case Family::gpt2:
      return {};
    case Family::llama:
      return {.bias = false,
              .tied_head = false,
              .norm = Norm::rms_norm,
              .activation = Activation::swiglu,
              .positions = Positions::rotary,
              .rotary_theta = 500000};
    case Family::qwen2:
    case Family::qwen3:
      return {.bias = false,
              .tied_head = false,
              .norm = Norm::rms_norm,
              .norm_epsilon = 1e-6,
              .qk_norm = family == Family::qwen3 ? QkNorm::with_gain : QkNorm::none,
              .activation = Activation::swiglu,
              .positions = Positions::rotary,
              .rotary_theta = 1e6,
              .qkv_bias = family == Family::qwen2};
    case Family::nanochat:
      return {.bias = false,
              .tied_head = false,
              .norm = Norm::rms_norm,
              .norm_gain = false,
              .norm_epsilon = 0x1p-23,
              .embedding_norm = true,
              .qk_norm = QkNorm::without_gain,
              .activation = Activation::squared_relu,
              .positions = Positions::rotary,
              .rotary_theta = 1e5,
              .output_init = OutputInit::zero,
              .logit_softcap = 15};
  }
  return {};
}

/// GPT-2's: Radford et al. 2019, table 2, with the heads of the published checkpoints (64 channels
/// each) and the vocabulary of 50257 rounded up to a multiple of 128. Llama 3.2's and Qwen3's:
/// config.json of the published checkpoints. nanochat's: depth d has 64 d channels in heads of 128,
/// and its tokenizer 65536 tokens.
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
    case Preset::qwen3_06b:
      return {.layers = 28,
              .heads = 16,
              .channels = 1024,
              .context = 40960,
              .vocabulary = 151936,
              .key_value_heads = 8,
              .head_channels = 128,
              .mlp_channels = 3072,
              .family = Family::qwen3,
              .tied_head = true};
    case Preset::nanochat_d12:
    case Preset::nanochat_d20: {
      const std::int64_t depth = preset == Preset::nanochat_d12 ? 12 : 20;
      return {.layers = depth,
              .heads = depth / 2,
              .channels = 64 * depth,
              .context = 2048,
              .vocabulary = 65536,
              .family = Family::nanochat};
    }
  }
  return {};
}

}  // namespace trireme::model
