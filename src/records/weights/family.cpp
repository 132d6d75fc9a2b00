// SPDX-License-Identifier: Apache-2.0
#include "weights/family.hpp"

#include <algorithm>

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
constexpr SizeRule gpt2_sizes[] = {
    {"n_layer", "model.layers", &GptShape::layers, model::most_layers},
    {"n_head", "model.heads", &GptShape::heads, 1024},
    {"n_embd", "model.channels", &GptShape::channels, 65536},
    {"n_positions", "model.context", &GptShape::context, 1 << 20},
    {"vocab_size", "model.vocabulary", &GptShape::vocabulary, 1 << 20}};
constexpr FixedRule gpt2_fixed[] = {
    {"scale_attn_weights", "true", false, "trireme scales attention by 1/sqrt(head width)"},
    {"scale_attn_by_inverse_layer_idx", "false", false,
     "trireme does not scale attention by the layer's index"},
    {"add_cross_attention", "false", false, "trireme has no cross attention"}};
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
    // Qwen3 only, in addition to the names above.
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
    {"hidden_act", R"("silu" or "swish")", true, "trireme gates the MLP with SiLU"},
    {"pretraining_tp", "1", false, "trireme reads matrices that are not split"},
    {"partial_rotary_factor", "1.0", false, "trireme rotates all channels of a head"}};
constexpr const char* llama_dropout[] = {"attention_dropout"};

constexpr FixedRule qwen3_fixed[] = {
    {"hidden_act", R"("silu" or "swish")", true, "trireme gates the MLP with SiLU"},
    {"attention_bias", "false", false, "trireme has biases in attention and MLP or in neither"}};

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
    {"hidden_act", R"("relu2")", true, "trireme uses the square of ReLU in the MLP"},
    {"attention_bias", "false", false, "trireme has biases in attention and MLP or in neither"}};

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

/// Whether the parts are those of Llama, Qwen3 or nanochat, apart from sizes, biases and tied head.
bool has_parts_of(model::Family family, const GptShape& shape) {
  const model::FamilyParts parts = model::parts_of(family);
  return shape.norm == parts.norm && shape.norm_gain == parts.norm_gain &&
         shape.embedding_norm == parts.embedding_norm && shape.qk_norm == parts.qk_norm &&
         shape.activation == parts.activation && shape.positions == parts.positions &&
         (!shape.bias || family == model::Family::llama);
}

/// The digits at the beginning of `name`.
std::string_view number_of(std::string_view name) {
  const auto digits = std::min(name.find_first_not_of("0123456789"), name.size());
  return name.substr(0, digits);
}

/// The text in `name` that matches '#'; "" if the pattern has none; nothing if it does not match.
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

const Family* find_family(const model::GptShape& shape) {
  for (const Family& family : all_families)
    if (family.kind == model::Family::gpt2 ? has_parts_of_gpt2(shape)
                                           : has_parts_of(family.kind, shape))
      return &family;
  return nullptr;
}

const Family& family_of(const model::GptShape& shape) {
  const Family* found = find_family(shape);
  TRIREME_EXPECT(found != nullptr, "no family can store the model: {}, {}, {}", word(shape.norm),
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
      if (rule.inverse_rotation && i < 2)
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
