// SPDX-License-Identifier: Apache-2.0
#include "weights/family.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace trireme::weights {
namespace {

using model::GptShape;

// ".weight" and ".bias" stay what they are.
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
constexpr SizeRule gpt2_sizes[] = {
    {"n_layer", "model.layers", &GptShape::layers, model::most_layers},
    {"n_head", "model.heads", &GptShape::heads, 1024},
    {"n_embd", "model.channels", &GptShape::channels, 65536},
    {"n_positions", "model.context", &GptShape::context, 1 << 20},
    {"vocab_size", "model.vocabulary", &GptShape::vocabulary, 1 << 20}};
constexpr FixedRule gpt2_fixed[] = {
    {"scale_attn_weights", "true", false, "attention here is scaled"},
    {"scale_attn_by_inverse_layer_idx", "false", false, "attention here is not scaled by layer"},
    {"add_cross_attention", "false", false, "the model here has no cross attention"}};
constexpr const char* gpt2_dropout[] = {"resid_pdrop", "embd_pdrop", "attn_pdrop"};

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
    // Of Qwen3, which has all of Llama's beside them.
    {"h.#.attn.q_norm", {"layers.#.self_attn.q_norm"}},
    {"h.#.attn.k_norm", {"layers.#.self_attn.k_norm"}}};
constexpr std::string_view llama_buffers[] = {"layers.#.self_attn.rotary_emb.inv_freq"};
constexpr SizeRule llama_sizes[] = {
    {"num_hidden_layers", "model.layers", &GptShape::layers, model::most_layers},
    {"num_attention_heads", "model.heads", &GptShape::heads, 1024},
    {"hidden_size", "model.channels", &GptShape::channels, 65536},
    {"max_position_embeddings", "model.context", &GptShape::context, 1 << 20},
    {"vocab_size", "model.vocabulary", &GptShape::vocabulary, 1 << 20}};
constexpr FixedRule llama_fixed[] = {
    {"hidden_act", R"("silu" or "swish")", true, "the MLP here is gated by SiLU"},
    {"pretraining_tp", "1", false, "the matrices here are whole"},
    {"partial_rotary_factor", "1.0", false, "all channels of a head are rotated here"}};
constexpr const char* llama_dropout[] = {"attention_dropout"};

constexpr FixedRule qwen3_fixed[] = {
    {"hidden_act", R"("silu" or "swish")", true, "the MLP here is gated by SiLU"},
    {"attention_bias", "false", false, "biases here are in the MLP as well, which has none there"}};

constexpr NameRule nanochat_names[] = {
    {"wte", {"embed_tokens"}},
    {"h.#.attn.qkv",
     {"layers.#.self_attn.q_proj", "layers.#.self_attn.k_proj", "layers.#.self_attn.v_proj"},
     false,
     true},
    {"h.#.attn.proj", {"layers.#.self_attn.o_proj"}},
    {"h.#.mlp.fc", {"layers.#.mlp.fc1"}},
    {"h.#.mlp.proj", {"layers.#.mlp.fc2"}},
    {"head", {"lm_head"}}};
constexpr FixedRule nanochat_fixed[] = {
    {"hidden_act", R"("relu2")", true, "the MLP here has the square of ReLU"},
    {"attention_bias", "false", false, "biases here are in the MLP as well, which has none there"}};

constexpr Family all_families[] = {
    {model::Family::gpt2, "gpt2", "GPT2LMHeadModel", "transformer.", gpt2_names, gpt2_buffers,
     gpt2_sizes, gpt2_fixed, "n_head", nullptr, 0, gpt2_dropout, true},
    {model::Family::llama, "llama", "LlamaForCausalLM", "model.", llama_names, llama_buffers,
     llama_sizes, llama_fixed, "num_attention_heads", "head_dim", 0, llama_dropout, false},
    {model::Family::qwen3, "qwen3", "Qwen3ForCausalLM", "model.", llama_names, llama_buffers,
     llama_sizes, qwen3_fixed, "num_attention_heads", "head_dim", 128, llama_dropout, false},
    {model::Family::nanochat, "nanochat", "NanoChatForCausalLM", "model.", nanochat_names,
     llama_buffers, llama_sizes, nanochat_fixed, "num_attention_heads", "head_dim", 0,
     llama_dropout, false}};

bool has_parts_of_gpt2(const GptShape& shape) {
  GptShape rest = shape.with_parts_of_gpt2();
  rest.hidden = shape.hidden;
  rest.norm_epsilon = shape.norm_epsilon;
  if (shape.activation != model::Activation::swiglu)
    rest.activation = shape.activation;
  return shape == rest;
}

/// Of the three that came later; sizes, biases and a tied head aside.
bool has_parts_of(model::Family family, const GptShape& shape) {
  const model::FamilyParts parts = model::parts_of(family);
  return shape.norm == parts.norm && shape.norm_gain == parts.norm_gain &&
         shape.embedding_norm == parts.embedding_norm && shape.qk_norm == parts.qk_norm &&
         shape.activation == parts.activation && shape.positions == parts.positions &&
         (!shape.bias || family == model::Family::llama);
}

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

/// Of our rows, those that each tensor of theirs holds.
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

const Family* find_family(const model::GptShape& shape) {
  for (const Family& family : all_families)
    if (family.kind == model::Family::gpt2 ? has_parts_of_gpt2(shape)
                                           : has_parts_of(family.kind, shape))
      return &family;
  return nullptr;
}

const Family& family_of(const model::GptShape& shape) {
  const Family* found = find_family(shape);
  TRIREME_EXPECT(found != nullptr, "a model that no family stores: {}, {}, {}", word(shape.norm),
                 word(shape.activation), word(shape.positions));
  return *found;
}

bool matches(std::string_view pattern, std::string_view name) {
  return match(pattern, name).has_value();
}

std::int64_t TheirTensor::elements() const {
  std::int64_t product = 1;
  for (const std::int64_t extent : shape) product *= extent;
  return product;
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
      if (rule.turns_other_way && i < 2)
        part.swapped_rows = shape.head_channels() / 2;
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

std::string head_name(const Family& family) {
  for (const NameRule& rule : family.names)
    if (rule.ours == "head")
      return std::string(rule.theirs.front()) + ".weight";
  TRIREME_EXPECT(false, "no head in {}", family.model_type);
  return {};
}

}  // namespace trireme::weights
