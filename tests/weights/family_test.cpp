// SPDX-License-Identifier: Apache-2.0
#include "weights/family.hpp"

#include <set>

#include "weights/folder.hpp"

namespace trireme::weights {
namespace {

TEST(Family, NamesTensorsAsTransformersDoes) {
  const Family& gpt2 = family_of(tiny_shape());
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
  for (const auto& [ours, theirs] : names) EXPECT_EQ(their_name(gpt2, ours).name, theirs);
}

TEST(Family, TurnsTheWeightsOfConv1DAndNothingElse) {
  std::set<std::string> turned;
  for (const layout::Parameter& parameter : model::parameter_table(tiny_shape()))
    if (their_name(family_of(tiny_shape()), parameter.name).transposed)
      turned.insert(parameter.name);
  EXPECT_EQ(turned, (std::set<std::string>{"h.0.attn.qkv.weight", "h.0.attn.proj.weight",
                                           "h.0.mlp.fc.weight", "h.0.mlp.proj.weight",
                                           "h.1.attn.qkv.weight", "h.1.attn.proj.weight",
                                           "h.1.mlp.fc.weight", "h.1.mlp.proj.weight"}));
}

TEST(Family, HasANameForEveryParameterAndNoneTwice) {
  model::GptShape shape = tiny_shape();
  shape.tied_head = false;
  for (const Family& family : families()) {
    std::set<std::string> names;
    const auto table = model::parameter_table(shape);
    for (const layout::Parameter& parameter : table)
      names.insert(their_name(family, parameter.name).name);
    EXPECT_EQ(names.size(), table.size());
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
