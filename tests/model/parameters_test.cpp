// SPDX-License-Identifier: Apache-2.0
// The parameter table against the published sizes, and the initial values as a pure function of
// (seed, parameter, element).
#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "model/gpt.hpp"
#include "nn/head.hpp"

namespace trireme::model {
namespace {

std::int64_t count_of(const GptShape& shape) {
  return layout::total_elements(parameter_table(shape));
}

GptShape preset(Preset which) {
  return resolve({.preset = which});
}

TEST(ModelConfig, KeysBesideAPresetOverrideIt) {
  const GptShape shape =
      resolve({.preset = Preset::gpt2_350m, .layers = 3, .vocabulary = 256, .bias = {false}});
  EXPECT_EQ(shape, (GptShape{.layers = 3,
                             .heads = 16,
                             .channels = 1024,
                             .context = 1024,
                             .vocabulary = 256,
                             .bias = false}));
}

TEST(ModelConfig, WithoutAPresetWhatIsNotGivenStaysZero) {
  const GptShape shape = resolve({.layers = 2, .dropout = 0.25, .tied_head = {false}});
  EXPECT_EQ(shape, (GptShape{.layers = 2, .dropout = 0.25, .tied_head = false}));
}

TEST(ModelConfig, AFamilyIsASetOfDefaults) {
  ModelConfig config{.family = {Family::llama}, .layers = 2, .heads = 4, .channels = 96};
  const GptShape llama = resolve(config);
  EXPECT_EQ(llama, (GptShape{.layers = 2,
                             .heads = 4,
                             .channels = 96,
                             .bias = false,
                             .tied_head = false,
                             .norm = Norm::rms_norm,
                             .activation = Activation::swiglu,
                             .positions = Positions::rotary,
                             .rotary_theta = 500000}));
  EXPECT_EQ(llama.mlp_channels(), 256);  // 8/3 x 96, rounded up to a multiple of 256
  // The same model with each key given.
  const ModelConfig keys{.layers = 2,
                         .heads = 4,
                         .channels = 96,
                         .key_value_heads = {4},
                         .norm = {Norm::rms_norm},
                         .norm_epsilon = {1e-5},
                         .activation = {Activation::swiglu},
                         .mlp_channels = {256},
                         .positions = {Positions::rotary},
                         .rotary_theta = {500000},
                         .rotary_scaling = {.factor = {1}},
                         .bias = {false},
                         .tied_head = {false}};
  EXPECT_EQ(resolve(keys), llama);
  config.key_value_heads = {2};
  EXPECT_EQ(resolve(config).key_value_heads(), 2);
  config.head_channels = {40};
  EXPECT_EQ(resolve(config).head_channels(), 40);
  config.head_channels = {24};  // 96 / 4
  EXPECT_EQ(resolve(config).head_width, 0);
  // Values of parts that the model does not have are ignored.
  EXPECT_EQ(resolve({.layers = 2, .rotary_theta = {7}, .rotary_scaling = {.factor = {3}}}),
            GptShape{.layers = 2});
}

TEST(ModelConfig, Qwen3AndNanochatAreSetsOfDefaultsToo) {
  const GptShape qwen3 =
      resolve({.family = {Family::qwen3}, .layers = 2, .heads = 4, .channels = 96});
  EXPECT_EQ(qwen3, (GptShape{.layers = 2,
                             .heads = 4,
                             .channels = 96,
                             .bias = false,
                             .tied_head = false,
                             .norm = Norm::rms_norm,
                             .norm_epsilon = 1e-6,
                             .qk_norm = QkNorm::with_gain,
                             .activation = Activation::swiglu,
                             .positions = Positions::rotary,
                             .rotary_theta = 1000000}));
  const GptShape nanochat =
      resolve({.family = {Family::nanochat}, .layers = 2, .heads = 4, .channels = 96});
  EXPECT_EQ(nanochat, (GptShape{.layers = 2,
                                .heads = 4,
                                .channels = 96,
                                .bias = false,
                                .tied_head = false,
                                .norm = Norm::rms_norm,
                                .norm_gain = false,
                                .norm_epsilon = 0x1p-23,
                                .embedding_norm = true,
                                .qk_norm = QkNorm::without_gain,
                                .activation = Activation::squared_relu,
                                .positions = Positions::rotary,
                                .rotary_theta = 100000,
                                .output_init = OutputInit::zero,
                                .logit_softcap = 15}));
  EXPECT_EQ(nanochat.mlp_channels(), 4 * 96);
  // Every part can be chosen without its family.
  EXPECT_EQ(resolve({.family = {Family::llama},
                     .layers = 2,
                     .heads = 4,
                     .channels = 96,
                     .norm_gain = {false},
                     .norm_epsilon = {0x1p-23},
                     .embedding_norm = {true},
                     .qk_norm = {QkNorm::without_gain},
                     .activation = {Activation::squared_relu},
                     .rotary_theta = {100000},
                     .output_init = {OutputInit::zero},
                     .logit_softcap = {15.0}}),
            nanochat);
  EXPECT_EQ(resolve({.family = {Family::nanochat}, .logit_softcap = {0.0}}).logit_softcap, 0);
}

TEST(ModelConfig, TheQwen3PresetHasThePublishedShape) {
  const GptShape shape = preset(Preset::qwen3_06b);
  EXPECT_EQ(shape.head_channels(), 128);
  EXPECT_EQ(shape.channels, 1024);
  EXPECT_EQ(shape.key_value_heads(), 8);
  EXPECT_TRUE(shape.tied_head);
  EXPECT_EQ(count_of(shape), 596'049'920);
  const auto table = parameter_table(shape);
  EXPECT_EQ(table[2].name, "h.0.attn.qkv.weight");
  EXPECT_EQ(table[2].shape, (std::vector<std::int64_t>{(16 + 8 + 8) * 128, 1024}));
  EXPECT_EQ(table[3].name, "h.0.attn.q_norm.weight");
  EXPECT_EQ(table[3].shape, (std::vector<std::int64_t>{128}));
  EXPECT_FALSE(table[3].decay);
  EXPECT_EQ(table[4].name, "h.0.attn.k_norm.weight");
  EXPECT_EQ(table[5].shape, (std::vector<std::int64_t>{1024, 16 * 128}));
  EXPECT_DOUBLE_EQ(flops_per_token(shape),
                   6.0 * 596'049'920.0 + 6.0 * 28.0 * 16.0 * 128.0 * 40960.0);
}

/// 2 V C of embedding and head, and 12 C² per block: nothing else has parameters.
TEST(ModelConfig, TheNanochatPresetsHaveThePublishedShapes) {
  EXPECT_EQ(count_of(preset(Preset::nanochat_d20)), 560'988'160);
  const GptShape d12 = preset(Preset::nanochat_d12);
  EXPECT_EQ(count_of(d12), 2 * 65536 * 768 + 12 * 12 * 768 * 768);
  EXPECT_EQ(d12.head_channels(), 128);
  for (const layout::Parameter& p : parameter_table(d12)) EXPECT_EQ(p.shape.size(), 2U) << p.name;
  EXPECT_DOUBLE_EQ(flops_per_token(d12),
                   6.0 * static_cast<double>(count_of(d12)) + 6.0 * 12.0 * 768.0 * 2048.0);
}

TEST(ModelConfig, TheLlamaPresetHasThePublishedShape) {
  const GptShape shape = preset(Preset::llama32_1b);
  EXPECT_EQ(shape, (GptShape{.layers = 16,
                             .heads = 32,
                             .channels = 2048,
                             .context = 131072,
                             .vocabulary = 128256,
                             .bias = false,
                             .tied_head = true,
                             .grouped_heads = 8,
                             .hidden = 8192,
                             .norm = Norm::rms_norm,
                             .activation = Activation::swiglu,
                             .positions = Positions::rotary,
                             .rotary_theta = 500000,
                             .rotary_scaling = {.factor = 32}}));
  EXPECT_EQ(count_of(shape), 1'235'814'400);
}

TEST(ParameterTable, PresetsHaveThePublishedSizes) {
  EXPECT_EQ(count_of(preset(Preset::gpt2_124m)), 124'475'904);
  EXPECT_EQ(count_of(preset(Preset::gpt2_350m)), 354'871'296);
  EXPECT_EQ(count_of(preset(Preset::gpt2_774m)), 774'090'240);
  EXPECT_EQ(count_of(preset(Preset::gpt2_1558m)), 1'557'686'400);
}

TEST(ParameterTable, RegistersInForwardOrder) {
  const auto table = parameter_table(
      {.layers = 1, .heads = 2, .channels = 8, .context = 5, .vocabulary = 11, .tied_head = false});
  const std::vector<std::pair<std::string, std::vector<std::int64_t>>> expected = {
      {"wte.weight", {11, 8}},
      {"wpe.weight", {5, 8}},
      {"h.0.ln_1.weight", {8}},
      {"h.0.ln_1.bias", {8}},
      {"h.0.attn.qkv.weight", {24, 8}},
      {"h.0.attn.qkv.bias", {24}},
      {"h.0.attn.proj.weight", {8, 8}},
      {"h.0.attn.proj.bias", {8}},
      {"h.0.ln_2.weight", {8}},
      {"h.0.ln_2.bias", {8}},
      {"h.0.mlp.fc.weight", {32, 8}},
      {"h.0.mlp.fc.bias", {32}},
      {"h.0.mlp.proj.weight", {8, 32}},
      {"h.0.mlp.proj.bias", {8}},
      {"ln_f.weight", {8}},
      {"ln_f.bias", {8}},
      {"head.weight", {11, 8}}};
  ASSERT_EQ(table.size(), expected.size());
  for (std::size_t i = 0; i < table.size(); ++i) {
    EXPECT_EQ(table[i].name, expected[i].first);
    EXPECT_EQ(table[i].shape, expected[i].second) << table[i].name;
    EXPECT_EQ(table[i].decay, table[i].shape.size() == 2) << table[i].name;
    EXPECT_FALSE(table[i].own_bucket) << table[i].name;
  }
}

TEST(ParameterTable, OfLlamaHasGainsAndMatricesAlone) {
  const auto table = parameter_table({.layers = 1,
                                      .heads = 4,
                                      .channels = 8,
                                      .context = 5,
                                      .vocabulary = 11,
                                      .bias = false,
                                      .tied_head = false,
                                      .grouped_heads = 2,
                                      .hidden = 7,
                                      .norm = Norm::rms_norm,
                                      .activation = Activation::swiglu,
                                      .positions = Positions::rotary,
                                      .rotary_theta = 10000});
  const std::vector<std::pair<std::string, std::vector<std::int64_t>>> expected = {
      {"wte.weight", {11, 8}},          {"h.0.ln_1.weight", {8}}, {"h.0.attn.qkv.weight", {16, 8}},
      {"h.0.attn.proj.weight", {8, 8}}, {"h.0.ln_2.weight", {8}}, {"h.0.mlp.fc.weight", {14, 8}},
      {"h.0.mlp.proj.weight", {8, 7}},  {"ln_f.weight", {8}},     {"head.weight", {11, 8}}};
  ASSERT_EQ(table.size(), expected.size());
  for (std::size_t i = 0; i < table.size(); ++i) {
    EXPECT_EQ(table[i].name, expected[i].first);
    EXPECT_EQ(table[i].shape, expected[i].second) << table[i].name;
    EXPECT_EQ(table[i].decay, table[i].shape.size() == 2) << table[i].name;
  }
  // Queries, keys and values are separate matrices, and so are the two halves of a gated MLP.
  EXPECT_EQ(table[2].matrices, (std::vector<std::int64_t>{8, 4, 4}));
  EXPECT_EQ(table[5].matrices, (std::vector<std::int64_t>{7, 7}));
}

TEST(ParameterTable, HeadsMayBeWiderThanTheStream) {
  const GptShape shape{.layers = 1,
                       .heads = 3,
                       .channels = 8,
                       .context = 5,
                       .vocabulary = 11,
                       .bias = false,
                       .grouped_heads = 1,
                       .head_width = 6};
  const auto table = parameter_table(shape);
  EXPECT_EQ(table[3].shape, (std::vector<std::int64_t>{(3 + 1 + 1) * 6, 8}));
  EXPECT_EQ(table[3].matrices, (std::vector<std::int64_t>{18, 6, 6}));
  EXPECT_EQ(table[4].shape, (std::vector<std::int64_t>{8, 18}));
  EXPECT_DOUBLE_EQ(flops_per_token(shape),
                   6.0 * static_cast<double>(count_of(shape)) + 6.0 * 1 * 3 * 6 * 5);
}

TEST(ParameterTable, ATiedEmbeddingHasItsOwnBucketAndNoHeadBesideIt) {
  const auto table = parameter_table(preset(Preset::gpt2_124m));
  EXPECT_EQ(table.size(), 2U + 12U * 12U + 2U);
  for (const layout::Parameter& p : table) {
    EXPECT_EQ(p.own_bucket, p.name == "wte.weight") << p.name;
    EXPECT_NE(p.name, "head.weight");
  }
}

TEST(ParameterTable, WithoutBiasOnlyWeightsRemain) {
  const auto table = parameter_table(
      {.layers = 2, .heads = 2, .channels = 8, .context = 5, .vocabulary = 11, .bias = false});
  EXPECT_EQ(table.size(), 2U + 2U * 6U + 1U);
  for (const layout::Parameter& p : table) EXPECT_TRUE(p.name.ends_with(".weight")) << p.name;
}

TEST(FlopsPerToken, FollowsItsFormula) {
  EXPECT_DOUBLE_EQ(flops_per_token(preset(Preset::gpt2_124m)),
                   6.0 * 124'475'904.0 + 6.0 * 12.0 * 768.0 * 1024.0);
}

TEST(FlopsPerToken, OfLlamaFollowsItToo) {
  const GptShape shape = preset(Preset::llama32_1b);
  EXPECT_DOUBLE_EQ(flops_per_token(shape), 6.0 * 1'235'814'400.0 + 6.0 * 16.0 * 2048.0 * 131072.0);
}

TEST(FlopsPerToken, CountsWhatAWindowShows) {
  GptShape shape = preset(Preset::gpt2_124m);
  const double attention = 6.0 * 12 * 768 * 1024, rest = flops_per_token(shape) - attention;
  shape.attention_window = 256;
  EXPECT_DOUBLE_EQ(flops_per_token(shape), rest + attention * (1 - 0.75 * 0.75));
  shape.attention_window = 4096;
  EXPECT_DOUBLE_EQ(flops_per_token(shape), rest + attention);
}

TEST(ActivationPlan, KeepsWhatLlamaNeeds) {
  GptShape shape = preset(Preset::llama32_1b);
  shape.context = 1024;
  const auto plan = activation_plan(shape, DType::bf16, 2, device::Kind::cpu);
  std::int64_t found = 0;
  for (const auto& item : plan.items()) {
    EXPECT_EQ(item.name.find("mean"), std::string::npos) << item.name;
    const bool qkv = item.name == "h.3.qkv", fc = item.name == "h.3.fc",
               table = item.name == "rotary";
    if (qkv || fc || table) {
      EXPECT_EQ(item.elements, qkv  ? 2 * 1024 * (32 + 8 + 8) * 64
                               : fc ? 2 * 1024 * 2 * 8192
                                    : 1024 * 64);
    }
    found += qkv || fc || table ? 1 : 0;
  }
  EXPECT_EQ(found, 3);
}

TEST(ActivationPlan, KeepsWhereDocumentsBeginForEveryTokenOnce) {
  GptShape shape = preset(Preset::gpt2_124m);
  const auto without = activation_plan(shape, DType::bf16, 3, device::Kind::cpu);
  shape.document_token = 50256;
  const auto with = activation_plan(shape, DType::bf16, 3, device::Kind::cpu);
  EXPECT_EQ(with.items().size(), without.items().size() + 1);
  EXPECT_EQ(with.bytes(), without.bytes() + 3 * 1024 * sizeof(std::int32_t));
  EXPECT_EQ(flops_per_token(shape), flops_per_token(preset(Preset::gpt2_124m)));
}

TEST(LinearProducts, AreTheFlopsOfTheWeightsTheyMultiply) {
  for (const Preset which : {Preset::gpt2_124m, Preset::gpt2_350m})
    for (const device::Kind kind : {device::Kind::cpu, device::Kind::cuda}) {
      const GptShape shape = preset(which);
      double flops = 0;
      for (const nn::ListedProduct& p : linear_products(shape, DType::bf16, 4, kind))
        flops += 3 * p.flops() * static_cast<double>(p.count);
      const auto C = static_cast<double>(shape.channels), L = static_cast<double>(shape.layers);
      const double weights = 12 * C * C * L + static_cast<double>(shape.vocabulary) * C;
      EXPECT_DOUBLE_EQ(flops, 6 * weights * 4 * static_cast<double>(shape.context));
    }
}

TEST(ActivationPlan, TakesTheHeadInLargeEqualChunksOnAGpu) {
  const GptShape shape = preset(Preset::gpt2_124m);
  const nn::ActivationPlan cpu = activation_plan(shape, DType::bf16, 32, device::Kind::cpu);
  EXPECT_EQ(cpu.head_rows(), 1024);  // 1083 rows of gradients fit into 104 MiB
  EXPECT_EQ(cpu.loss_rows(), 512);   // 541 rows of fp32 logits fit: two halves of a sequence
  EXPECT_EQ(cpu.scratch().logits.elements, 512 * shape.vocabulary);
  EXPECT_EQ(cpu.scratch().d_logits.elements, 1024 * shape.vocabulary);
  const nn::ActivationPlan fp32 = activation_plan(shape, DType::f32, 32, device::Kind::cpu);
  EXPECT_EQ(fp32.head_rows(), 512);
  EXPECT_EQ(fp32.loss_rows(), 512);
  // 20 sequences would fit into 2 GiB of bf16 logits: two chunks, of 16 each.
  const nn::ActivationPlan gpu = activation_plan(shape, DType::bf16, 32, device::Kind::cuda);
  EXPECT_EQ(gpu.head_rows(), 16 * 1024);
  EXPECT_EQ(gpu.scratch().logits.elements, 16 * 1024 * shape.vocabulary);
  EXPECT_EQ(gpu.scratch().d_logits.elements, 0);  // it shares the memory of the logits
  EXPECT_EQ(activation_plan(shape, DType::bf16, 21, device::Kind::cuda).head_rows(), 11 * 1024);
  EXPECT_EQ(gpu.bytes(), cpu.bytes());
}

TEST(Head, PartsOfTheLossAreWholeSequencesWhereTheyHaveSeveral) {
  EXPECT_EQ(nn::rows_of_loss(5, 96, 16), 5);
  EXPECT_EQ(nn::rows_of_loss(16, 96, 16), 16);
  EXPECT_EQ(nn::rows_of_loss(40, 96, 16), 32);
  EXPECT_EQ(nn::rows_of_loss(1000, 96, 16), 96);
}

TEST(ActivationPlan, LogitsStayInTheirRoomWhateverTheVocabulary) {
  for (const std::int64_t vocabulary : {50304, 128256, 262144})
    for (const std::int64_t sequences : {1, 4, 32})
      for (const std::int64_t context : {1024, 1000, 131072}) {
        GptShape shape = preset(Preset::gpt2_124m);
        shape.vocabulary = vocabulary;
        shape.context = context;
        const auto plan = activation_plan(shape, DType::bf16, sequences, device::Kind::cpu);
        for (const auto& item : {plan.scratch().logits, plan.scratch().d_logits})
          EXPECT_LE(item.bytes(), std::size_t{104} << 20U)
              << vocabulary << " tokens, " << sequences << " sequences of " << context;
      }
}

/// Up to rounding of chunks to 16 rows and to equal parts of a sequence.
TEST(ActivationPlan, AVocabularyOf128kTakesTheMemoryOfOneOf50k) {
  const auto scratch = [](std::int64_t vocabulary) {
    GptShape shape = preset(Preset::gpt2_124m);
    shape.vocabulary = vocabulary;
    return activation_plan(shape, DType::bf16, 4, device::Kind::cpu).scratch();
  };
  const auto gpt2 = scratch(50304);
  EXPECT_EQ(gpt2.logits.elements, 512 * 50304);
  EXPECT_EQ(scratch(128256).logits.elements, 208 * 128256);
  EXPECT_EQ(scratch(128256).d_logits.elements, 2 * 208 * 128256);
  EXPECT_EQ(scratch(151936).logits.elements, 176 * 151936);
  for (const std::int64_t vocabulary : {65536, 100352, 128256, 151936, 201088, 262144}) {
    const double ratio = static_cast<double>(scratch(vocabulary).logits.bytes()) /
                         static_cast<double>(gpt2.logits.bytes());
    EXPECT_GT(ratio, 0.85) << vocabulary;
    EXPECT_LT(ratio, 1.06) << vocabulary;
  }
}

class Initialization : public testing::Test {
 protected:
  GptShape shape{.layers = 8, .heads = 2, .channels = 64, .context = 33, .vocabulary = 257};

  std::vector<float> values(const std::string& name, std::uint64_t seed = 42) const {
    const auto table = parameter_table(shape);
    for (std::size_t i = 0; i < table.size(); ++i)
      if (table[i].name == name) {
        std::vector<float> v(static_cast<std::size_t>(table[i].elements()), -7.0F);
        Layers(shape).registry.initialize(static_cast<ParameterIndex>(i), seed,
                                          view_of(v.data(), table[i].elements()));
        return v;
      }
    ADD_FAILURE() << "no parameter " << name;
    return {};
  }
};

TEST_F(Initialization, MatricesAreNormalWithGpt2Deviations) {
  const auto expect_normal = [&](const std::string& name, double deviation) {
    const auto v = values(name);
    const auto n = static_cast<double>(v.size());
    double sum = 0, squares = 0, fourths = 0;
    for (const double x : v) {
      sum += x;
      squares += x * x;
      fourths += x * x * x * x;
    }
    const double sigma = std::sqrt(squares / n);
    // Five standard errors of mean, deviation and kurtosis.
    EXPECT_LT(std::abs(sum / n), 5 * deviation / std::sqrt(n)) << name;
    EXPECT_NEAR(sigma, deviation, 5 * deviation / std::sqrt(2 * n)) << name;
    EXPECT_NEAR(fourths / n / (sigma * sigma * sigma * sigma), 3.0, 5 * std::sqrt(24 / n)) << name;
  };
  expect_normal("wte.weight", 0.02);
  expect_normal("wpe.weight", 0.02);
  expect_normal("h.3.attn.qkv.weight", 0.02);
  expect_normal("h.3.mlp.fc.weight", 0.02);
  expect_normal("h.3.attn.proj.weight", 0.02 / 4);  // sqrt(2 · 8 layers) = 4
  expect_normal("h.7.mlp.proj.weight", 0.02 / 4);
}

TEST_F(Initialization, GainsAreOneAndBiasesZero) {
  for (const char* name : {"h.0.ln_1.weight", "h.7.ln_2.weight", "ln_f.weight"})
    for (const float x : values(name)) ASSERT_EQ(x, 1.0F) << name;
  for (const char* name : {"h.0.ln_1.bias", "h.0.attn.qkv.bias", "h.2.mlp.proj.bias", "ln_f.bias"})
    for (const float x : values(name)) ASSERT_EQ(x, 0.0F) << name;
}

TEST_F(Initialization, OutputsMayBeginAtZero) {
  shape.output_init = OutputInit::zero;
  shape.tied_head = false;
  for (const char* name : {"h.0.attn.proj.weight", "h.7.mlp.proj.weight", "head.weight"})
    for (const float x : values(name)) ASSERT_EQ(x, 0.0F) << name;
  GptShape scaled = shape;
  scaled.output_init = OutputInit::scaled;
  for (const char* name : {"wte.weight", "h.0.attn.qkv.weight", "h.7.mlp.fc.weight"}) {
    const auto with_zeros = values(name);
    std::swap(shape, scaled);
    EXPECT_EQ(values(name), with_zeros) << name;
    std::swap(shape, scaled);
  }
}

TEST_F(Initialization, DependsOnSeedParameterAndElementOnly) {
  EXPECT_EQ(values("h.1.mlp.fc.weight"), values("h.1.mlp.fc.weight"));
  EXPECT_NE(values("h.1.mlp.fc.weight"), values("h.1.mlp.fc.weight", 43));
  EXPECT_NE(values("h.1.mlp.fc.weight"), values("h.1.mlp.fc.weight", 42 + (1ULL << 32U)));
  EXPECT_NE(values("h.1.mlp.fc.weight"), values("h.2.mlp.fc.weight"));

  // Element e does not change when the parameter grows.
  const auto large = values("wpe.weight");
  shape.context = 32;
  const auto small = values("wpe.weight");
  EXPECT_TRUE(std::equal(small.begin(), small.end(), large.begin()));

  const std::set<float> distinct(large.begin(), large.end());
  EXPECT_GT(distinct.size(), large.size() * 99 / 100);
}

TEST_F(Initialization, OfAnyPartIsThatOfTheWhole) {
  const auto table = parameter_table(shape);
  for (std::size_t p = 0; p < table.size(); ++p) {
    const std::int64_t elements = table[p].elements();
    std::vector<float> whole(static_cast<std::size_t>(elements));
    Layers(shape).registry.initialize(static_cast<ParameterIndex>(p), 7,
                                      view_of(whole.data(), elements));
    for (const std::int64_t begin : {std::int64_t{0}, std::int64_t{1}, elements / 3, elements - 1})
      for (const std::int64_t count : {std::int64_t{1}, std::int64_t{2}, (elements - begin) / 2}) {
        const std::int64_t length = std::min(count, elements - begin);
        std::vector<float> part(static_cast<std::size_t>(length) + 1, -7.0F);
        Layers(shape).registry.initialize(static_cast<ParameterIndex>(p), 7,
                                          view_of(part.data(), length), begin);
        EXPECT_TRUE(std::equal(part.begin(), part.end() - 1, whole.begin() + begin)) << begin;
        EXPECT_EQ(part.back(), -7.0F);
      }
  }
}

TEST_F(Initialization, RefusesElementsThatTheParameterHasNot) {
  std::vector<float> v(5);
  const std::int64_t elements = parameter_table(shape)[0].elements();
  for (const std::int64_t begin : {std::int64_t{-1}, elements - 4})
    EXPECT_THROW(
        Layers(shape).registry.initialize(ParameterIndex{0}, 1, view_of(v.data(), 5), begin),
        ContractError);
  EXPECT_THROW(Layers(shape).registry.initialize(ParameterIndex{1000}, 1, view_of(v.data(), 5)),
               ContractError);
}

}  // namespace
}  // namespace trireme::model
