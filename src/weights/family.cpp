// SPDX-License-Identifier: Apache-2.0
#include "weights/family.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace trireme::weights {
namespace {

using model::GptShape;

// ".weight" and ".bias" stay what they are.
constexpr NameRule gpt2_names[] = {{"wte", "wte"},
                                   {"wpe", "wpe"},
                                   {"h.#.ln_1", "h.#.ln_1"},
                                   {"h.#.attn.qkv", "h.#.attn.c_attn", true},
                                   {"h.#.attn.proj", "h.#.attn.c_proj", true},
                                   {"h.#.ln_2", "h.#.ln_2"},
                                   {"h.#.mlp.fc", "h.#.mlp.c_fc", true},
                                   {"h.#.mlp.proj", "h.#.mlp.c_proj", true},
                                   {"ln_f", "ln_f"},
                                   {"head", "lm_head"}};
constexpr std::string_view gpt2_buffers[] = {"h.#.attn.bias", "h.#.attn.masked_bias"};
constexpr SizeRule gpt2_sizes[] = {
    {"n_layer", "model.layers", &GptShape::layers, 1000},
    {"n_head", "model.heads", &GptShape::heads, 1024},
    {"n_embd", "model.channels", &GptShape::channels, 65536},
    {"n_positions", "model.context", &GptShape::context, 1 << 20},
    {"vocab_size", "model.vocabulary", &GptShape::vocabulary, 1 << 20}};
constexpr FixedRule gpt2_fixed[] = {
    {"activation_function", R"("gelu_new" or "gelu_pytorch_tanh")", true,
     "the MLP here has GELU in its tanh form"},
    {"layer_norm_epsilon", "1e-05", false, "the layer norms here have an epsilon of 1e-5"},
    {"scale_attn_weights", "true", false, "attention here is scaled"},
    {"scale_attn_by_inverse_layer_idx", "false", false, "attention here is not scaled by layer"},
    {"add_cross_attention", "false", false, "the model here has no cross attention"}};

constexpr Family all_families[] = {
    {"gpt2", "GPT2LMHeadModel", "transformer.", gpt2_names, gpt2_buffers, gpt2_sizes, gpt2_fixed}};

/// The digits at the begin of `name`.
std::string_view number_of(std::string_view name) {
  const auto digits = std::min(name.find_first_not_of("0123456789"), name.size());
  return name.substr(0, digits);
}

/// What stands for '#' in `name`; "" also where the pattern has none. Nothing: no match.
std::optional<std::string_view> match(std::string_view pattern, std::string_view name) {
  const auto hash = pattern.find('#');
  if (hash == std::string_view::npos)
    return pattern == name ? std::optional(std::string_view()) : std::nullopt;
  if (!name.starts_with(pattern.substr(0, hash)))
    return std::nullopt;
  const std::string_view number = number_of(name.substr(hash));
  if (number.empty() || name.substr(hash + number.size()) != pattern.substr(hash + 1))
    return std::nullopt;
  return number;
}

}  // namespace

std::span<const Family> families() {
  return all_families;
}

const Family& family_of(const model::GptShape& /*shape*/) {
  return all_families[0];
}

bool matches(std::string_view pattern, std::string_view name) {
  return match(pattern, name).has_value();
}

TheirName their_name(const Family& family, std::string_view parameter) {
  const auto dot = parameter.rfind('.');
  const std::string_view layer = parameter.substr(0, dot), kind = parameter.substr(dot);
  for (const NameRule& rule : family.names)
    if (const auto number = match(rule.ours, layer)) {
      std::string name(rule.theirs);
      if (const auto hash = name.find('#'); hash != std::string::npos)
        name.replace(hash, 1, *number);
      return {name.append(kind), rule.transposed && kind == ".weight"};
    }
  TRIREME_EXPECT(false, "no name for {} in {}", parameter, family.model_type);
  return {};
}

}  // namespace trireme::weights
