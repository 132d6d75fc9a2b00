// SPDX-License-Identifier: Apache-2.0
#include "weights/family.hpp"

#include <algorithm>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.hpp"

namespace trireme::weights {
namespace {

using model::GptShape;

// The suffixes ".weight" and ".bias" are the same on both sides.
constexpr NameRule gpt2_names[] = {{"wte", {"wte"}},
                                   {"wpe", {"wpe"}},
                                   {"h.#.ln_1", {"h.#.ln_1"}},
                                   {"h.#.attn.qkv", {"h.#.attn.c_attn"}, true},
                                   {"h.#.attn.proj", {"h.#.attn.c_proj"}, true},
                                   {"h.#.ln_2", {"h.#.ln_2"}},
                                   {"h.#.mlp.fc", {"h.#.mlp.c_fc"}, true},
                                   {"h.#.mlp.proj", {"h.#.mlp.c_proj"}, true},
                                   {"ln_f", {"ln_f"}},
                                   {"head", {"lm_head"}}};
constexpr std::string_view gpt2_buffers[] = {"h.#.attn.bias", "h.#.attn.masked_bias"};

constexpr NameRule llama_names[] = {
    {"wte", {"embed_tokens"}},
    {"h.#.ln_1", {"layers.#.input_layernorm"}},
    {"h.#.attn.qkv",
     {"layers.#.self_attn.q_proj", "layers.#.self_attn.k_proj", "layers.#.self_attn.v_proj"}},
    {"h.#.attn.proj", {"layers.#.self_attn.o_proj"}},
    {"h.#.ln_2", {"layers.#.post_attention_layernorm"}},
    {"h.#.mlp.fc", {"layers.#.mlp.gate_proj", "layers.#.mlp.up_proj"}},
    {"h.#.mlp.proj", {"layers.#.mlp.down_proj"}},
    {"ln_f", {"norm"}},
    {"head", {"lm_head"}},
    // Qwen3 only.
    {"h.#.attn.q_norm", {"layers.#.self_attn.q_norm"}},
    {"h.#.attn.k_norm", {"layers.#.self_attn.k_norm"}}};
constexpr std::string_view llama_buffers[] = {"layers.#.self_attn.rotary_emb.inv_freq"};

constexpr NameRule nanochat_names[] = {
    {"wte", {"embed_tokens"}},
    {"h.#.attn.qkv",
     {"layers.#.self_attn.q_proj", "layers.#.self_attn.k_proj", "layers.#.self_attn.v_proj"},
     false,
     HeadRows::swapped},
    {"h.#.attn.proj", {"layers.#.self_attn.o_proj"}},
    {"h.#.mlp.fc", {"layers.#.mlp.fc1"}},
    {"h.#.mlp.proj", {"layers.#.mlp.fc2"}},
    {"head", {"lm_head"}}};

constexpr Family like_llama(model::Family kind,
                            const char* model_type,
                            const char* architecture,
                            Windows windows,
                            std::span<const NameRule> names = llama_names) {
  return {.kind = kind,
          .model_type = model_type,
          .architecture = architecture,
          .prefix = "model.",
          .names = names,
          .buffers = llama_buffers,
          .windows = windows,
          .may_have_biases = model_type == std::string_view("llama")};
}

// find_family() takes the first: a Mistral without a window is a Llama.
constexpr Family all_families[] = {
    {.kind = model::Family::gpt2,
     .model_type = "gpt2",
     .architecture = "GPT2LMHeadModel",
     .prefix = "transformer.",
     .names = gpt2_names,
     .buffers = gpt2_buffers,
     .may_have_biases = true,
     .always_biased = true,
     .may_square_relu = true},
    like_llama(model::Family::llama, "llama", "LlamaForCausalLM", Windows::none),
    like_llama(model::Family::llama, "mistral", "MistralForCausalLM", Windows::all_layers),
    like_llama(model::Family::qwen2, "qwen2", "Qwen2ForCausalLM", Windows::some_layers),
    like_llama(model::Family::qwen3, "qwen3", "Qwen3ForCausalLM", Windows::some_layers),
    like_llama(
        model::Family::nanochat, "nanochat", "NanoChatForCausalLM", Windows::none, nanochat_names)};

/// The text in `name` that matches '#'; "" if the pattern has none; nothing if it does not match.
std::optional<std::string_view> match(std::string_view pattern, std::string_view name) {
  const auto hash = pattern.find('#');
  if (hash == std::string_view::npos)
    return pattern == name ? std::optional(std::string_view()) : std::nullopt;
  if (!name.starts_with(pattern.substr(0, hash)))
    return std::nullopt;
  const std::size_t end = std::min(name.find_first_not_of("0123456789", hash), name.size());
  const std::string_view number = name.substr(hash, end - hash);
  if (number.empty() || name.substr(end) != pattern.substr(hash + 1))
    return std::nullopt;
  return number;
}

/// The numbers of our rows that each of their tensors contains.
std::vector<std::int64_t> rows_of_parts(const NameRule& rule,
                                        const GptShape& shape,
                                        std::int64_t rows) {
  if (rule.theirs[1].empty())
    return {rows};
  if (rule.theirs[2].empty())
    return {rows / 2, rows / 2};
  const std::int64_t keys = shape.key_value_heads() * shape.head_channels();
  return {rows - 2 * keys, keys, keys};
}

}  // namespace

std::span<const Family> families() {
  return all_families;
}

std::vector<std::string> parts_beyond(const Family& family, const GptShape& shape) {
  const GptShape parts = model::parts_of(family.kind);
  const bool gpt2 = family.kind == model::Family::gpt2;
  const bool nanochat = family.kind == model::Family::nanochat;
  std::vector<std::string> beyond;
  const auto values = model::key_values(shape);
  const auto require = [&](bool possible, std::string_view key) {
    if (!possible)
      beyond.push_back(
          fmt::format("model.{}: {}", key, std::ranges::find(values, key, [](const auto& value) {
                                             return std::string_view(value.first);
                                           })->second));
  };
  require(shape.norm == parts.norm, "norm");
  require(shape.norm_gain == parts.norm_gain, "norm_gain");
  require(shape.embedding_norm == parts.embedding_norm, "embedding_norm");
  require(shape.qk_norm == parts.qk_norm, "qk_norm");
  require(shape.activation == parts.activation ||
              (family.may_square_relu && shape.activation == model::Activation::squared_relu),
          "activation");
  require(shape.positions == parts.positions, "positions");
  require(shape.bias ? family.may_have_biases : shape.qkv_bias == parts.qkv_bias,
          shape.bias ? "bias" : "qkv_bias");
  require(!gpt2 || shape.grouped_heads == 0, "key_value_heads");
  require(!gpt2 || shape.head_width == 0, "head_channels");
  require(shape.logit_softcap == 0 || nanochat, "logit_softcap");
  // It normalizes after the rotation, which would undo the factor.
  require(shape.rotary_scaling.attention_factor == 1 || !nanochat,
          "rotary_scaling.attention_factor");
  require(!shape.rotary_scaling.active() || family.scales_as_llama3 ||
              shape.rotary_scaling.type != ops::RotaryScalingType::llama3,
          "rotary_scaling.type");
  require(shape.attention_window == 0 || family.windows != Windows::none, "attention_window");
  require(shape.long_layers.none() || family.windows != Windows::all_layers, "window_pattern");
  return beyond;
}

const Family* find_family(const GptShape& shape, std::span<const Family> among) {
  const auto found = std::ranges::find_if(
      among, [&](const Family& family) { return parts_beyond(family, shape).empty(); });
  return found == among.end() ? nullptr : &*found;
}

const Family& family_of(const GptShape& shape,
                        std::string_view file,
                        std::string_view format,
                        std::span<const Family> among) {
  if (const Family* found = find_family(shape, among))
    return *found;
  const Family& nearest = *std::ranges::min_element(
      among, {}, [&](const Family& family) { return parts_beyond(family, shape).size(); });
  throw UserError(
      {std::string(file)},
      fmt::format("{} cannot express this model. In the nearest family, {}, "
                  "there is no {}.",
                  format, nearest.model_type, fmt::join(parts_beyond(nearest, shape), ", no ")));
}

bool matches(std::string_view pattern, std::string_view name) {
  return match(pattern, name).has_value();
}

std::int64_t TheirTensor::our_row(std::int64_t stored) const {
  if (head_rows == HeadRows::ours)
    return stored;
  const std::int64_t half = rows_of_head / 2, at = stored % rows_of_head, head = stored - at;
  return head +
         (head_rows == HeadRows::swapped ? (at + half) % rows_of_head : at % 2 * half + at / 2);
}

std::vector<TheirTensor> their_tensors(const Family& family,
                                       const model::GptShape& shape,
                                       const layout::Parameter& parameter) {
  const auto dot = parameter.name.rfind('.');
  const std::string_view whole = parameter.name;
  const std::string_view layer = whole.substr(0, dot), kind = whole.substr(dot);
  for (const NameRule& rule : family.names) {
    const auto number = match(rule.ours, layer);
    if (!number)
      continue;
    const std::vector<std::int64_t> rows = rows_of_parts(rule, shape, parameter.shape.at(0));
    std::vector<TheirTensor> parts;
    std::int64_t begin = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      TheirTensor part{.name = std::string(rule.theirs.at(i)),
                       .transposed = rule.transposed && kind == ".weight",
                       .shape = parameter.shape,
                       .begin = begin};
      if (i < 2) {
        part.head_rows = rule.head_rows;
        part.rows_of_head = shape.head_channels();
      }
      if (const auto hash = part.name.find('#'); hash != std::string::npos)
        part.name.replace(hash, 1, *number);
      part.name += kind;
      part.shape.at(0) = rows[i];
      begin += part.elements();
      parts.push_back(std::move(part));
    }
    return parts;
  }
  TRIREME_EXPECT(false, "no name for {} in {}", parameter.name, family.model_type);
  return {};
}

}  // namespace trireme::weights
