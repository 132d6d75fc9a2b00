// SPDX-License-Identifier: Apache-2.0
#include "weights/family.hpp"

#include <map>
#include <set>

#include "weights/folder.hpp"

namespace trireme::weights {
namespace {

/// The names of all tensors that hold a parameter, joined by spaces.
std::string names_of(const model::GptShape& shape, const layout::Parameter& parameter) {
  std::string names;
  for (const TheirTensor& their : their_tensors(family_of(shape), shape, parameter))
    names += (names.empty() ? "" : " ") + their.name;
  return names;
}

TEST(Family, NamesTensorsOfLlamaAsTransformersDoes) {
  const model::GptShape shape = tiny_llama();
  const std::map<std::string, std::string> expected{
      {"wte.weight", "embed_tokens.weight"},
      {"h.1.ln_1.weight", "layers.1.input_layernorm.weight"},
      {"h.1.attn.qkv.weight",
       "layers.1.self_attn.q_proj.weight layers.1.self_attn.k_proj.weight "
       "layers.1.self_attn.v_proj.weight"},
      {"h.1.attn.proj.weight", "layers.1.self_attn.o_proj.weight"},
      {"h.1.ln_2.weight", "layers.1.post_attention_layernorm.weight"},
      {"h.1.mlp.fc.weight", "layers.1.mlp.gate_proj.weight layers.1.mlp.up_proj.weight"},
      {"h.1.mlp.proj.weight", "layers.1.mlp.down_proj.weight"},
      {"ln_f.weight", "norm.weight"},
      {"head.weight", "lm_head.weight"}};
  for (const layout::Parameter& parameter : model::parameter_table(shape)) {
    std::int64_t at = 0;
    for (const TheirTensor& their : their_tensors(family_of(shape), shape, parameter)) {
      EXPECT_EQ(their.begin, at) << their.name;
      EXPECT_FALSE(their.transposed) << their.name;
      at += their.elements();
    }
    EXPECT_EQ(at, parameter.elements()) << parameter.name;
    if (!parameter.name.starts_with("h.0.")) {
      EXPECT_EQ(names_of(shape, parameter), expected.at(parameter.name));
    }
  }
}

TEST(Family, NamesTensorsOfQwen3AsTransformersDoes) {
  std::map<std::string, std::string> found;
  for (const layout::Parameter& parameter : model::parameter_table(tiny_qwen3()))
    found[parameter.name] = names_of(tiny_qwen3(), parameter);
  EXPECT_EQ(found.size(), 2U * 8 + 3);
  EXPECT_EQ(found.at("h.1.attn.q_norm.weight"), "layers.1.self_attn.q_norm.weight");
  EXPECT_EQ(found.at("h.1.attn.k_norm.weight"), "layers.1.self_attn.k_norm.weight");
  EXPECT_EQ(found.at("h.0.attn.qkv.weight"),
            "layers.0.self_attn.q_proj.weight layers.0.self_attn.k_proj.weight "
            "layers.0.self_attn.v_proj.weight");
  EXPECT_EQ(found.at("h.0.mlp.fc.weight"),
            "layers.0.mlp.gate_proj.weight layers.0.mlp.up_proj.weight");
}

TEST(Family, NamesTensorsOfNanochatAsTransformersDoes) {
  const std::map<std::string, std::string> expected{
      {"wte.weight", "embed_tokens.weight"},
      {"h.1.attn.qkv.weight",
       "layers.1.self_attn.q_proj.weight layers.1.self_attn.k_proj.weight "
       "layers.1.self_attn.v_proj.weight"},
      {"h.1.attn.proj.weight", "layers.1.self_attn.o_proj.weight"},
      {"h.1.mlp.fc.weight", "layers.1.mlp.fc1.weight"},
      {"h.1.mlp.proj.weight", "layers.1.mlp.fc2.weight"},
      {"head.weight", "lm_head.weight"}};
  for (const layout::Parameter& parameter : model::parameter_table(tiny_nanochat()))
    if (!parameter.name.starts_with("h.0.")) {
      EXPECT_EQ(names_of(tiny_nanochat(), parameter), expected.at(parameter.name));
    }
  // Queries and keys turn the other way there.
  std::vector<std::int64_t> rows;
  for (const TheirTensor& their :
       their_tensors(family_of(tiny_nanochat()), tiny_nanochat(),
                     layout::Parameter{.name = "h.0.attn.qkv.weight", .shape = {16, 8}}))
    for (std::int64_t row = 0; row < their.shape[0]; ++row) rows.push_back(their.our_row(row));
  EXPECT_EQ(rows, (std::vector<std::int64_t>{2, 3, 0, 1, 6, 7, 4, 5, 2, 3, 0, 1, 0, 1, 2, 3}));
}

TEST(Family, IsFoundByTheParts) {
  model::GptShape shape = tiny_llama();
  EXPECT_EQ(find_family(shape)->kind, model::Family::llama);
  shape.attention_window = 3;
  EXPECT_STREQ(find_family(shape)->model_type, "mistral");
  shape.long_layers = model::long_layers("LS", 2);
  EXPECT_EQ(find_family(shape), nullptr);
  shape.qkv_bias = true;
  EXPECT_EQ(find_family(shape)->kind, model::Family::qwen2);
  shape = tiny_llama();
  shape.qk_norm = model::QkNorm::with_gain;
  EXPECT_EQ(find_family(shape)->kind, model::Family::qwen3);
  shape.bias = true;
  EXPECT_EQ(find_family(shape), nullptr);
  shape = tiny_llama();
  shape.norm = model::Norm::layer_norm;
  EXPECT_EQ(find_family(shape), nullptr);
  shape = tiny_nanochat();
  EXPECT_EQ(find_family(shape)->kind, model::Family::nanochat);
  shape.embedding_norm = false;
  EXPECT_EQ(find_family(shape), nullptr);
  shape = tiny_shape();
  shape.qk_norm = model::QkNorm::without_gain;
  EXPECT_EQ(find_family(shape), nullptr);
  shape = tiny_shape();
  shape.activation = model::Activation::squared_relu;
  EXPECT_EQ(find_family(shape)->kind, model::Family::gpt2);
  shape.grouped_heads = 1;
  EXPECT_EQ(find_family(shape), nullptr);
}

TEST(Family, NamesTensorsAsTransformersDoes) {
  const model::GptShape shape = tiny_shape();
  const Family& gpt2 = family_of(shape);
  const std::pair<const char*, const char*> names[] = {
      {"wte.weight", "wte.weight"},
      {"wpe.weight", "wpe.weight"},
      {"h.11.ln_1.bias", "h.11.ln_1.bias"},
      {"h.0.attn.qkv.weight", "h.0.attn.c_attn.weight"},
      {"h.7.attn.qkv.bias", "h.7.attn.c_attn.bias"},
      {"h.7.attn.proj.weight", "h.7.attn.c_proj.weight"},
      {"h.7.mlp.fc.weight", "h.7.mlp.c_fc.weight"},
      {"h.123.mlp.proj.weight", "h.123.mlp.c_proj.weight"},
      {"ln_f.weight", "ln_f.weight"},
      {"head.weight", "lm_head.weight"}};
  for (const auto& [ours, theirs] : names) {
    const auto tensors =
        their_tensors(gpt2, shape, layout::Parameter{.name = ours, .shape = {6, 6}});
    ASSERT_EQ(tensors.size(), 1U);
    EXPECT_EQ(tensors.front().name, theirs);
  }
}

TEST(Family, TurnsTheWeightsOfConv1DAndNothingElse) {
  std::set<std::string> turned;
  for (const layout::Parameter& parameter : model::parameter_table(tiny_shape()))
    if (their_tensors(family_of(tiny_shape()), tiny_shape(), parameter).front().transposed)
      turned.insert(parameter.name);
  EXPECT_EQ(turned, (std::set<std::string>{"h.0.attn.qkv.weight", "h.0.attn.proj.weight",
                                           "h.0.mlp.fc.weight", "h.0.mlp.proj.weight",
                                           "h.1.attn.qkv.weight", "h.1.attn.proj.weight",
                                           "h.1.mlp.fc.weight", "h.1.mlp.proj.weight"}));
}

TEST(Family, HasANameForEveryParameterAndNoneTwice) {
  for (model::GptShape shape :
       {tiny_shape(), tiny_llama(), tiny_qwen2(), tiny_qwen3(), tiny_nanochat()}) {
    shape.tied_head = false;
    std::set<std::string> names;
    std::size_t count = 0;
    for (const layout::Parameter& parameter : model::parameter_table(shape))
      for (const TheirTensor& their : their_tensors(family_of(shape), shape, parameter)) {
        names.insert(their.name);
        ++count;
      }
    EXPECT_EQ(names.size(), count);
  }
}

TEST(Family, MatchesNumbersOnly) {
  EXPECT_TRUE(matches("h.#.attn.bias", "h.10.attn.bias"));
  EXPECT_FALSE(matches("h.#.attn.bias", "h..attn.bias"));
  EXPECT_FALSE(matches("h.#.attn.bias", "h.x.attn.bias"));
  EXPECT_FALSE(matches("h.#.attn.bias", "h.1.attn.biases"));
  EXPECT_FALSE(matches("h.#.attn.bias", "h"));
  EXPECT_TRUE(matches("ln_f", "ln_f"));
  EXPECT_FALSE(matches("ln_f", "ln_f.weight"));
}

}  // namespace
}  // namespace trireme::weights
