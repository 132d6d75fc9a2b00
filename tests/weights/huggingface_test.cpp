// SPDX-License-Identifier: Apache-2.0
#include "weights/huggingface.hpp"

#include <cmath>
#include <filesystem>
#include <functional>
#include <vector>

#include <gmock/gmock.h>

#include "model/gpt.hpp"

#include "weights/folder.hpp"
#include "weights/open.hpp"
#include "weights/tensor_files.hpp"

namespace trireme::weights {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string folder_refusal(const Folder& folder) {
  const std::string& path = folder.write();
  return mistakes_of([&] { static_cast<void>(open_model(path)); });
}

void expect_values(const StoredModel& model) {
  TensorReader reader(model);
  const auto table = model::parameter_table(model.shape);
  ASSERT_EQ(model.tensors.size(), table.size());
  for (std::size_t p = 0; p < table.size(); ++p) {
    EXPECT_EQ(model.tensors[p].parameter, table[p].name);
    std::vector<float> values(static_cast<std::size_t>(table[p].elements()));
    reader.read(model.tensors[p], 0, view_of(values.data(), std::ssize(values)));
    for (std::size_t i = 0; i < values.size(); ++i)
      ASSERT_EQ(values[i], value_of(p, static_cast<std::int64_t>(i))) << table[p].name;
  }
}

TEST(HuggingFace, GivesTransformersLogits) {
  // Made by transformers 5.23 and torch 2.15: two layers, far from their initial values.
  const StoredModel stored = open_model(TRIREME_GOLDEN);
  EXPECT_EQ(
      stored.shape,
      (model::GptShape{.layers = 2, .heads = 2, .channels = 8, .context = 8, .vocabulary = 24}));
  const auto device = device::make_cpu_device(1);
  const auto stream = device->make_stream(device::StreamMode::inlined, "compute");
  const auto loaded = load_parameters(stored, *device, *stream);
  model::Gpt gpt(*device, stored.shape, DType::f32, 1, 0);
  gpt.bind(loaded.views, {});
  const std::vector<std::int32_t> tokens{3, 17, 0, 23, 5, 5, 11, 9};
  const std::string expected = test::bytes_of(std::string(TRIREME_GOLDEN) + "/logits.bin");
  ASSERT_EQ(expected.size(), tokens.size() * 24 * sizeof(float));
  nn::Hooks hooks;
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    std::vector<float> logits(24), golden(24);
    gpt.next_logits(view_of(tokens.data(), static_cast<std::int64_t>(t) + 1),
                    view_of(logits.data(), 24), hooks, *stream);
    std::memcpy(golden.data(), expected.data() + t * 24 * sizeof(float), 24 * sizeof(float));
    for (std::size_t v = 0; v < 24; ++v) EXPECT_NEAR(logits[v], golden[v], 1e-5) << t << " " << v;
  }
}

TEST(HuggingFace, ReadsEveryParameterInItsOrder) {
  model::GptShape shape = tiny_shape();
  for (const bool tied : {true, false}) {
    shape.tied_head = tied;
    const Folder folder(shape);
    const StoredModel model = open_model(folder.write());
    EXPECT_EQ(model.shape, shape);
    EXPECT_EQ(model.format, "huggingface");
    expect_values(model);
  }
}

TEST(HuggingFace, TakesNamesWithoutThePrefixAndBuffers) {
  Folder folder;
  Tensors bare;
  for (const auto& [name, tensor] : folder.tensors)
    bare[name.substr(std::string_view("transformer.").size())] = tensor;
  bare["h.0.attn.bias"] = {"U8", {1, 1, 5, 5}, std::string(25, '\1')};
  bare["h.1.attn.masked_bias"] = {"F32", {}, "1234"};
  folder.tensors = bare;
  expect_values(open_model(folder.write()));
}

TEST(HuggingFace, TakesATiedHeadThatIsTheEmbeddingAndNoOther) {
  Folder folder;
  folder.tensors["lm_head.weight"] = folder.tensors["transformer.wte.weight"];
  expect_values(open_model(folder.write()));
  folder.tensors["lm_head.weight"].bytes[5] ^= 1;
  EXPECT_THAT(folder_refusal(folder), HasSubstr("lm_head.weight: it differs from"));
}

TEST(HuggingFace, ReadsShardsByTheirIndex) {
  const Folder folder;
  Tensors shards[2];
  std::string map;
  for (const auto& [name, tensor] : folder.tensors) {
    const std::size_t shard = name.size() % 2;
    shards[shard][name] = tensor;
    map += fmt::format(R"({}"{}": "part-{}.safetensors")", map.empty() ? "" : ", ", name, shard);
  }
  const auto write = [&](const std::string& index) {
    for (std::size_t shard = 0; shard < 2; ++shard)
      test::write_bytes(folder.directory / fmt::format("part-{}.safetensors", shard),
                        safetensors_of(shards[shard]));
    test::write_bytes(folder.directory / "model.safetensors.index.json", index);
    test::write_bytes(folder.directory / "config.json", folder.config);
  };
  const auto told = [&](const std::string& index) {
    write(index);
    return mistakes_of([&] { static_cast<void>(open_model(folder.directory.path())); });
  };
  const std::string good = fmt::format(R"({{"metadata": {{}}, "weight_map": {{{}}}}})", map);
  write(good);
  expect_values(open_model(folder.directory.path()));
  EXPECT_THAT(told(replaced(good, "part-1", "part-0")), HasSubstr("does not list it in"));
  EXPECT_THAT(told(replaced(good, "part-1.safetensors", "../part-1.safetensors")),
              HasSubstr("expected the name of a file in the folder"));
  EXPECT_THAT(told(replaced(good, "part-1.safetensors", "gone.safetensors")),
              HasSubstr("gone.safetensors"));
  EXPECT_THAT(told(R"({"weight_map": 7})"), HasSubstr("weight_map"));
  EXPECT_THAT(told("7"), HasSubstr("weight_map"));
  shards[0]["transformer.ln_f.weight"] = shards[1]["transformer.ln_f.weight"] =
      folder.tensors.at("transformer.ln_f.weight");
  EXPECT_THAT(told(good), HasSubstr("transformer.ln_f.weight: "));
}

TEST(HuggingFace, ListsAllThatIsMissingSurplusOrAnother) {
  Folder folder;
  folder.tensors.erase("transformer.h.0.ln_1.weight");
  folder.tensors.erase("transformer.h.1.mlp.c_fc.bias");
  folder.tensors["transformer.h.2.ln_1.weight"] = {"F32", {1}, "1234"};
  folder.tensors["transformer.h.0.attn.c_attn.weight"].shape = {18, 6};  // not transposed
  folder.tensors["transformer.ln_f.bias"] = {"F8_E4M3", {6}, "123456"};
  folder.tensors["wpe.weight"] = folder.tensors["transformer.wpe.weight"];
  EXPECT_THAT(folder_refusal(folder), HasSubstr("wpe.weight: this tensor occurs twice"));
  folder.tensors.erase("wpe.weight");
  const std::string told = folder_refusal(folder);
  EXPECT_THAT(told, HasSubstr("h.0.ln_1.weight: missing; the model described by"));
  EXPECT_THAT(told, HasSubstr("h.1.mlp.c_fc.bias: missing"));
  EXPECT_THAT(told, HasSubstr("transformer.h.2.ln_1.weight: unexpected tensor"));
  EXPECT_THAT(told, HasSubstr("its shape is [18, 6]"));
  EXPECT_THAT(told, HasSubstr("needs [6, 18]"));
  EXPECT_THAT(told, HasSubstr("its dtype is F8_E4M3; supported are F32, BF16 and F16"));
  EXPECT_EQ(std::count(told.begin(), told.end(), '\n'), 4);
}

struct BadConfig {
  const char* name;
  const char* what;
  const char* by;
  const char* told;
};
class BadConfigs : public ::testing::TestWithParam<BadConfig> {};

TEST_P(BadConfigs, AreRefusedByTheirKey) {
  Folder folder;
  folder.config = replaced(folder.config, GetParam().what, GetParam().by);
  EXPECT_THAT(folder_refusal(folder), HasSubstr(GetParam().told));
}

constexpr BadConfig bad_configs[] = {
    {"Gemma", R"("gpt2")", R"("gemma")",
     "model_type: \"gemma\": this architecture is not supported. Supported: gpt2, llama, "
     "mistral, qwen2, qwen3, nanochat"},
    {"Smollm3", R"("gpt2")", R"("smollm3")",
     "model_type: \"smollm3\": this architecture is not supported: some of its layers have no "
     "rotary positions"},
    {"Quantized", R"("n_layer")", R"("quantization_config": {"bits": 4}, "n_layer")",
     "quantization_config: {\"bits\":4}: the weights are quantized"},
    {"Pruned", R"("n_layer")", R"("pruned_heads": {"1": [0]}, "n_layer")", "pruned_heads"},
    {"Inverse", R"("n_layer")", R"("scale_attn_by_inverse_layer_idx": true, "n_layer")",
     "scale_attn_by_inverse_layer_idx: true"},
    {"End", R"("n_layer")", R"("eos_token_id": [3, 9], "n_layer")",
     "eos_token_id: [3,9]; it must be a token from 0 to 8, a list of tokens, or null"},
    {"NoType", R"("model_type": "gpt2",)", "", "model_type: missing"},
    {"Relu", "gelu_new", "relu", "activation_function"},
    {"ExactGelu", "gelu_new", "gelu", "activation_function"},
    {"Epsilon", R"("n_layer")", R"("layer_norm_epsilon": 0, "n_layer")",
     "layer_norm_epsilon: 0; it must be a positive number"},
    {"Inner", R"("n_layer")", R"("n_inner": -7, "n_layer")", "n_inner: -7"},
    {"InnerOfOtherTensors", R"("n_layer")", R"("n_inner": 7, "n_layer")", "needs [6, 7]"},
    {"Unscaled", R"("n_layer")", R"("scale_attn_weights": false, "n_layer")", "scale_attn_weights"},
    {"Cross", R"("n_layer")", R"("add_cross_attention": true, "n_layer")", "add_cross_attention"},
    {"NoLayers", R"("n_layer": 2)", R"("n_layer": 0)", "n_layer: 0; it must be an integer from 1"},
    {"HugeLayers", R"("n_layer": 2)", R"("n_layer": 99999999999)", "n_layer: 99999999999"},
    {"LayersAsText", R"("n_layer": 2)", R"("n_layer": "2")", "n_layer: \"2\""},
    {"MissingSize", R"("n_embd": 6,)", "", "n_embd: missing"},
    {"Heads", R"("n_head": 2)", R"("n_head": 4)", "4 heads do not divide 6 channels"},
    {"Tied", "true", "1", "tie_word_embeddings: must be true or false"},
    {"NoObject", "{", "[{", "config.json"},
    {"OtherVocabulary", R"("vocab_size": 9)", R"("vocab_size": 10)", "needs [10, 6]"}};

INSTANTIATE_TEST_SUITE_P(All, BadConfigs, ::testing::ValuesIn(bad_configs), [](const auto& one) {
  return one.param.name;
});

class BadLlamas : public ::testing::TestWithParam<BadConfig> {};

TEST_P(BadLlamas, AreRefusedByTheirKey) {
  Folder folder(tiny_llama());
  folder.config = replaced(folder.config, GetParam().what, GetParam().by);
  EXPECT_THAT(folder_refusal(folder), HasSubstr(GetParam().told));
}

constexpr BadConfig bad_llamas[] = {
    {"Gelu", "silu", "gelu", "hidden_act: \"gelu\": trireme gates the MLP with SiLU"},
    {"Longrope", "llama3", "longrope",
     "rope_parameters.rope_type: \"longrope\": trireme does not scale positions so; it must be "
     "\"llama3\" or \"yarn\" or \"linear\" or \"default\""},
    {"YarnWithKeysOfLlama", "llama3", "yarn",
     "rope_parameters.high_freq_factor: trireme does not know this parameter of rope_type "
     "\"yarn\""},
    {"SurplusKey", R"("factor": 8)", R"("factor": 8, "mscale": 2)",
     "rope_parameters.mscale: trireme does not know this parameter of rope_type \"llama3\""},
    {"PerLayerType", R"("rope_parameters")", R"("rope_scaling": {"full_attention": {}},
 "rope_parameters")",
     "rope_scaling.full_attention: trireme does not know"},
    {"Shrinks", R"("factor": 8)", R"("factor": 0.5)", "rope_parameters.factor: 0.5; it must be"},
    {"Partial", R"("factor": 8)", R"("factor": 8, "partial_rotary_factor": 0.5)",
     "rope_parameters.partial_rotary_factor: 0.5: trireme rotates all channels of a head"},
    {"PartialOutside", R"("vocab_size")", R"("partial_rotary_factor": 0.5, "vocab_size")",
     "partial_rotary_factor: 0.5"},
    {"Factor", R"("factor": 8)", R"("factor": "8")",
     "rope_parameters.factor: \"8\"; it must be a positive number"},
    {"NoFactor", R"("factor": 8,)", "", "rope_parameters.factor: missing"},
    {"Frequencies", R"("low_freq_factor": 1)", R"("low_freq_factor": 4)",
     "rope_parameters.high_freq_factor: 4 is not above low_freq_factor = 4"},
    {"BothSpellings", R"("rope_parameters")",
     R"("rope_scaling": {"rope_type": "default"}, "rope_parameters")",
     "rope_parameters: differs from rope_scaling"},
    {"Theta", R"("rope_theta": 500000)", R"("rope_theta": 0)", "rope_parameters.rope_theta: 0"},
    {"KeyValueHeads", R"("num_key_value_heads": 1)", R"("num_key_value_heads": 3)",
     "num_key_value_heads: 3 does not divide 2 heads"},
    {"Heads", R"("num_attention_heads": 2)", R"("num_attention_heads": 3)",
     "num_attention_heads: 3 heads do not divide 8 channels"},
    {"OddHeads", R"("num_attention_heads": 2)", R"("num_attention_heads": 8)",
     "an even number of channels"},
    {"HeadDim", R"("vocab_size")", R"("head_dim": 7, "vocab_size")",
     "head_dim: rotary positions need an even number of channels per head, not 7"},
    {"HalfBiased", R"("mlp_bias": false)", R"("mlp_bias": true)", "mlp_bias: true"},
    {"Epsilon", "1e-06", "-1", "rms_norm_eps: -1; it must be a positive number"},
    {"NoWidth", R"("intermediate_size": 7,)", "", "intermediate_size: missing"},
    {"OtherWidth", R"("intermediate_size": 7)", R"("intermediate_size": 6)", "needs [6, 8]"}};

INSTANTIATE_TEST_SUITE_P(All, BadLlamas, ::testing::ValuesIn(bad_llamas), [](const auto& one) {
  return one.param.name;
});

struct BadFamily {
  model::GptShape shape;
  BadConfig config;
};
class BadFamilies : public ::testing::TestWithParam<BadFamily> {};

TEST_P(BadFamilies, AreRefusedByTheirKey) {
  Folder folder(GetParam().shape);
  folder.config = replaced(folder.config, GetParam().config.what, GetParam().config.by);
  EXPECT_THAT(folder_refusal(folder), HasSubstr(GetParam().config.told));
}

std::vector<BadFamily> bad_families() {
  const model::GptShape qwen3 = tiny_qwen3(), nanochat = tiny_nanochat();
  return {{qwen3,
           {"Biased", R"("attention_bias": false)", R"("attention_bias": true)",
            "attention_bias: true: trireme has biases in attention and MLP or in neither"}},
          {qwen3,
           {"LayerTypes", R"(["full_attention",)", R"(["sliding_attention",)",
            "layer_types: \"sliding_attention\": a layer must be \"full_attention\", because "
            "use_sliding_window and sliding_window define no window"}},
          {qwen3,
           {"OtherLayerTypes",
            R"("use_sliding_window": false, "sliding_window": null,
 "layer_types": ["full_attention",)",
            R"("use_sliding_window": true, "layer_types": ["chunked_attention",)",
            "layer_types: \"chunked_attention\": a layer must be \"full_attention\" or "
            "\"sliding_attention\""}},
          {qwen3,
           {"FewerLayerTypes", R"(["full_attention", "full_attention"])", R"(["full_attention"])",
            "layer_types: expected a list of 2 layers"}},
          {qwen3,
           {"NoWindow", R"("use_sliding_window": false, "sliding_window": null)",
            R"("use_sliding_window": true, "sliding_window": 0)", "sliding_window: 0; it must be"}},
          {qwen3, {"OtherWidth", R"("head_dim": 6)", R"("head_dim": 4)", "needs [8, 8]"}},
          {qwen3, {"DefaultWidth", R"("head_dim": 6, )", "", "needs [256, 8]"}},
          {nanochat,
           {"SoftCap", R"("final_logit_softcapping": 15)", R"("final_logit_softcapping": -15)",
            "final_logit_softcapping: "}},
          {nanochat, {"Silu", "relu2", "silu", "hidden_act: \"silu\": trireme uses the square"}}};
}

INSTANTIATE_TEST_SUITE_P(All,
                         BadFamilies,
                         ::testing::ValuesIn(bad_families()),
                         [](const auto& one) { return one.param.config.name; });

TEST(HuggingFace, ReadsOtherFamiliesFromTheirParts) {
  for (model::GptShape shape : {tiny_mistral(), tiny_qwen2(), tiny_qwen3(), tiny_nanochat()})
    for (const bool tied : {false, true}) {
      shape.tied_head = tied;
      const Folder folder(shape);
      const StoredModel model = open_model(folder.write());
      EXPECT_EQ(model.shape, shape);
      expect_values(model);
    }
}

/// The window and the layers of a Qwen3 whose config.json contains `keys`.
std::string windows_of(const std::string& keys) {
  const std::string before = R"("use_sliding_window": false, "sliding_window": null,
 "layer_types": ["full_attention", "full_attention"])";
  const model::GptShape shape = shape_of_config(replaced(qwen3_config(tiny_qwen3()), before, keys));
  return fmt::format("{} {}", shape.attention_window,
                     model::pattern_of(shape.long_layers, shape.layers));
}

TEST(HuggingFace, ReadsTheWindowsOfQwen3) {
  EXPECT_EQ(windows_of(R"("use_sliding_window": true, "sliding_window": 9,
                          "layer_types": ["sliding_attention", "full_attention"])"),
            "9 SL");
  EXPECT_EQ(windows_of(R"("use_sliding_window": true, "sliding_window": 9,
                          "max_window_layers": 2,
                          "layer_types": ["full_attention", "sliding_attention"])"),
            "9 LS")
      << "the list says it";
  EXPECT_EQ(windows_of(R"("use_sliding_window": true, "sliding_window": 9,
                          "max_window_layers": 1)"),
            "9 LS");
  EXPECT_EQ(windows_of(R"("use_sliding_window": true, "max_window_layers": 0)"), "4096 SS");
  EXPECT_EQ(windows_of(R"("use_sliding_window": true)"), "0 SS") << "from layer 28 on";
  EXPECT_EQ(windows_of(R"("use_sliding_window": false, "sliding_window": 9,
                          "max_window_layers": 0)"),
            "0 SS");
  EXPECT_EQ(windows_of(R"("use_sliding_window": true, "sliding_window": null,
                          "max_window_layers": 0)"),
            "0 SS");
}

TEST(HuggingFace, WritesTheWindowsOfQwen3ThatItReads) {
  model::GptShape shape = tiny_qwen3();
  shape.attention_window = 3;
  EXPECT_EQ(shape_of_config(config_json(shape)), shape);
  for (const char* pattern : {"SL", "LS"}) {
    shape.long_layers = model::long_layers(pattern, 2);
    EXPECT_EQ(shape_of_config(config_json(shape)), shape);
  }
}

/// The scaling of a tiny Llama with these members of rope_scaling.
model::RotaryScaling scaling_of(const std::string& members, const std::string& others = "") {
  model::GptShape plain = tiny_llama();
  plain.rotary_scaling = {};
  return shape_of_config(replaced(config_json(plain), R"("rope_scaling": null)",
                                  fmt::format(R"({}"rope_scaling": {{{}}})", others, members)))
      .rotary_scaling;
}

TEST(HuggingFace, RefusesAnAttentionFactorThatItWouldDrop) {
  EXPECT_EQ(scaling_of(R"("rope_type": "yarn", "factor": 1)"), model::RotaryScaling{});
  EXPECT_THROW(scaling_of(R"("rope_type": "yarn", "factor": 1, "attention_factor": 1.5)"),
               UserError);
}

TEST(HuggingFace, ReadsScaledPositionsAsTransformersDoes) {
  using Type = ops::RotaryScalingType;
  EXPECT_EQ(scaling_of(R"("type": "linear", "factor": 4.0)"),
            (model::RotaryScaling{.factor = 4, .type = Type::linear}));
  EXPECT_EQ(scaling_of(R"("rope_type": "yarn", "factor": 4, "attention_factor": 2)"),
            (model::RotaryScaling{
                .factor = 4, .original_context = 5, .type = Type::yarn, .attention_factor = 2}))
      << "without original_max_position_embeddings, it is the model's context";
  EXPECT_EQ(scaling_of(R"("rope_type": "yarn", "factor": 4, "beta_fast": 16, "mscale": 1,
                          "mscale_all_dim": 1, "original_max_position_embeddings": 9)",
                       R"("original_max_position_embeddings": 64, )"),
            (model::RotaryScaling{
                .factor = 4, .original_context = 64, .type = Type::yarn, .beta_fast = 16}));
  EXPECT_EQ(scaling_of(R"("rope_type": "yarn", "original_max_position_embeddings": 2)").factor,
            2.5);
  model::GptShape shape = tiny_llama();
  shape.rotary_scaling = {};
  shape.rotary_theta = 7;
  EXPECT_EQ(shape_of_config(replaced(config_json(tiny_llama()), R"("rope_type": "llama3")",
                                     R"("rope_type": "llama3", "rope_theta": 7)"))
                .rotary_theta,
            7)
      << "the inner one counts";
}

TEST(HuggingFace, ReportsKeysWithoutEffectUnlessTheySayNothing) {
  const std::string config =
      replaced(gpt2_config(tiny_shape()), R"("n_layer")",
               R"("surprise": 1, "other": null, "third": false, "fourth": {}, "use_cache": true,
 "transformers_version": "5", "sliding_window": 8, "n_layer")");
  EXPECT_THAT(read_config({"c", config}).notes,
              testing::ElementsAre("c: keys that neither trireme nor GPT2LMHeadModel of "
                                   "transformers uses: sliding_window, surprise"));
  EXPECT_THAT(read_config({"c", config_json(tiny_qwen2())}).notes, testing::IsEmpty());
}

TEST(HuggingFace, ReadsRolesFromBothFiles) {
  Folder folder;
  folder.config =
      replaced(folder.config, R"("n_layer")",
               R"("bos_token_id": 3, "eos_token_id": 4, "pad_token_id": -1, "n_layer")");
  EXPECT_EQ(open_model(folder.write()).roles, (Roles{.begin = 3, .ends = {4}}));
  test::write_bytes(folder.directory / "generation_config.json",
                    R"({"eos_token_id": [4, 5], "pad_token_id": 6, "temperature": 0.6})");
  EXPECT_EQ(open_model(folder.write()).roles, (Roles{.begin = 3, .ends = {4, 5}, .padding = 6}));
}

TEST(HuggingFace, WritesTheConfigsOfOtherFamiliesThatItReads) {
  for (model::GptShape shape : {tiny_mistral(), tiny_qwen2(), tiny_qwen3(), tiny_nanochat()}) {
    EXPECT_EQ(shape_of_config(config_json(shape)), shape);
    shape.grouped_heads = shape.hidden = shape.head_width = 0;
    EXPECT_EQ(shape_of_config(config_json(shape)), shape);
  }
  EXPECT_THAT(config_json(tiny_qwen3()), HasSubstr("Qwen3ForCausalLM"));
  EXPECT_THAT(config_json(tiny_qwen3()), HasSubstr("\"head_dim\": 6"));
  EXPECT_THAT(config_json(tiny_nanochat()), HasSubstr("NanoChatForCausalLM"));
  EXPECT_THAT(config_json(tiny_nanochat()), HasSubstr("\"final_logit_softcapping\": 15.0"));
  model::GptShape uncapped = tiny_nanochat();
  uncapped.logit_softcap = 0;
  EXPECT_THAT(config_json(uncapped), HasSubstr("\"final_logit_softcapping\": null"));
  EXPECT_EQ(shape_of_config(config_json(uncapped)), uncapped);
}

TEST(HuggingFace, CapsTheLogitsOfANanochatWhoseConfigHasNoCap) {
  Folder folder(tiny_nanochat());
  folder.config = replaced(folder.config, R"(, "final_logit_softcapping": 15)", "");
  EXPECT_EQ(open_model(folder.write()).shape.logit_softcap, 15);
}

TEST(HuggingFace, ReadsLlamaFromItsParts) {
  model::GptShape biased = tiny_llama();
  biased.bias = biased.tied_head = true;
  biased.rotary_scaling = {};
  for (const model::GptShape& shape : {tiny_llama(), biased}) {
    Folder folder(shape);
    if (shape.bias)
      folder.config = config_json(shape);
    const StoredModel model = open_model(folder.write());
    EXPECT_EQ(model.shape, shape);
    expect_values(model);
  }
}

TEST(HuggingFace, PartsOfOneParameterMustHaveOneDtype) {
  Folder folder(tiny_llama());
  Tensor& up = folder.tensors.at("model.layers.1.mlp.up_proj.weight");
  up.dtype = "BF16";
  up.bytes.resize(up.bytes.size() / 2);
  folder.tensors.erase("model.layers.0.self_attn.v_proj.weight");
  const std::string told = folder_refusal(folder);
  EXPECT_THAT(told, HasSubstr("up_proj.weight: its dtype is BF16, but that of "
                              "model.layers.1.mlp.gate_proj.weight"));
  EXPECT_THAT(told, HasSubstr("layers.0.self_attn.v_proj.weight: missing"));
}

TEST(HuggingFace, WritesTheLlamaConfigThatItReads) {
  model::GptShape shape = tiny_llama();
  EXPECT_EQ(shape_of_config(llama_config(shape)), shape);
  EXPECT_EQ(shape_of_config(config_json(shape)), shape);
  shape.rotary_scaling = {};
  shape.bias = shape.tied_head = true;
  shape.grouped_heads = shape.hidden = 0;
  EXPECT_EQ(shape_of_config(config_json(shape)), shape);
  EXPECT_THAT(config_json(shape), HasSubstr("LlamaForCausalLM"));
  EXPECT_THAT(config_json(shape), HasSubstr("\"rope_scaling\": null"));
}

TEST(HuggingFace, ReadsAndWritesOtherMlpsAndEpsilonsOfGpt2) {
  model::GptShape shape = tiny_shape();
  shape.activation = model::Activation::squared_relu;
  shape.hidden = 7;
  shape.norm_epsilon = 1e-6;
  EXPECT_EQ(shape_of_config(config_json(shape)), shape);
  EXPECT_THAT(config_json(shape), HasSubstr("relu2"));
}

TEST(HuggingFace, TakesTheOtherNameOfTheSameActivation) {
  Folder folder;
  folder.config = replaced(folder.config, "gelu_new", "gelu_pytorch_tanh");
  expect_values(open_model(folder.write()));
}

TEST(HuggingFace, DropsTheBiasesOfAModelWithoutWhenTheyAreZero) {
  Folder folder;
  folder.config = replaced(folder.config, R"("n_layer")", R"("trireme_bias": false, "n_layer")");
  EXPECT_THAT(folder_refusal(folder), HasSubstr("it is not zero"));
  for (auto& [name, tensor] : folder.tensors)
    if (name.ends_with(".bias"))
      tensor.bytes.assign(tensor.bytes.size(), '\0');
  const StoredModel model = open_model(folder.write());
  EXPECT_FALSE(model.shape.bias);
  EXPECT_EQ(model.tensors.size(), model::parameter_table(model.shape).size());
}

TEST(OpenModel, NamesWhatIsMissing) {
  const auto told = [](const std::string& path) {
    return mistakes_of([&] { static_cast<void>(open_model(path)); });
  };
  const test::ScratchDirectory empty;
  EXPECT_THAT(told(empty / "nope"), HasSubstr("no such file"));
  EXPECT_THAT(told(empty.path()), HasSubstr("no weights in this directory"));
  test::write_bytes(empty / "x.safetensors", "");
  EXPECT_THAT(told(empty / "x.safetensors"), HasSubstr("name the folder"));
  test::write_bytes(empty / "text", "hello");
  EXPECT_THAT(told(empty / "text"), HasSubstr("with weights"));
  test::write_bytes(empty / "config.json", gpt2_config(tiny_shape()));
  EXPECT_THAT(told(empty.path()), HasSubstr("neither model.safetensors nor"));
  test::write_bytes(empty / "pytorch_model.bin", "");
  EXPECT_THAT(told(empty.path()), HasSubstr("save_pretrained"));
  const Folder folder;
  std::filesystem::remove(folder.write() + "/config.json");
  EXPECT_THAT(told(folder.directory.path()), HasSubstr("config.json is missing"));
}

TEST(HuggingFace, WritesTheConfigThatItReads) {
  model::GptShape shape = tiny_shape();
  for (const bool bias : {true, false})
    for (const bool tied : {true, false}) {
      shape.bias = bias;
      shape.tied_head = tied;
      EXPECT_EQ(shape_of_config(config_json(shape, {.begin = 3})), shape);
    }
  EXPECT_THAT(config_json(shape, {.begin = 3, .ends = {4}}),
              testing::AllOf(HasSubstr("\"bos_token_id\": 3"), HasSubstr("\"eos_token_id\": 4")));
  EXPECT_THAT(generation_config_json({.ends = {4, 5}}),
              HasSubstr("\"eos_token_id\": [\n    4,\n    5\n  ]"));
  EXPECT_THAT(generation_config_json({}), HasSubstr("\"eos_token_id\": null"));
}

}  // namespace
}  // namespace trireme::weights
