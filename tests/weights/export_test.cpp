// SPDX-License-Identifier: Apache-2.0
#include "weights/export.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <vector>

#include <gmock/gmock.h>

#include "base/hash.hpp"

#include "comm/control/world.hpp"

#include "text/vocabulary.hpp"

#include "record/checkpoint/checkpoint.hpp"
#include "record/checkpoint/rank_file.hpp"
#include "weights/checkpoint_weights.hpp"
#include "weights/folder.hpp"
#include "weights/huggingface.hpp"
#include "weights/import.hpp"
#include "weights/open.hpp"
#include "weights/tensor_files.hpp"

#include "support/checkpoint_reader.hpp"

namespace trireme::weights {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

std::string imported(const std::string& source,
                     const test::ScratchDirectory& directory,
                     bool with_tokenizer = false) {
  const auto world = comm::make_self_world();
  ImportRequest request{
      .source = source, .output = directory / "run", .tokenizer = {}, .build = {}};
  request.without_tokenizer = !with_tokenizer;
  request.tokenizer = with_tokenizer ? text::byte_tokenizer() : nullptr;
  static_cast<void>(import_model(request, *world));
  return request.output;
}

ExportRequest request_of(const std::string& source, const std::string& output) {
  ExportRequest request;
  request.source = source;
  request.output = output;
  return request;
}

/// All parameters by name.
std::map<std::string, std::vector<float>> values_of(const StoredModel& model) {
  std::map<std::string, std::vector<float>> all;
  TensorReader reader(model);
  for (const StoredTensor& tensor : model.tensors) {
    auto& values = all[tensor.parameter];
    values.resize(static_cast<std::size_t>(tensor.elements()));
    reader.read(tensor, 0, view_of(values.data(), std::ssize(values)));
  }
  return all;
}

TEST(Export, GivesBackALlamaAndWhatFollowedItThatWereImported) {
  model::GptShape tied = tiny_llama();
  tied.tied_head = true;
  for (const model::GptShape& shape :
       {tiny_llama(), tied, tiny_mistral(), tiny_qwen2(), tiny_qwen3(), tiny_nanochat()}) {
    const Folder folder(shape);
    const test::ScratchDirectory directory;
    const std::string run = imported(folder.write(), directory);
    ExportRequest request = request_of(run, directory / "out");
    const Exported exported = export_model(request);
    EXPECT_EQ(values_of(open_model(request.output)), values_of(open_model(folder.write())));
    EXPECT_EQ(open_model(request.output).shape, shape);
    request.output = directory / "llmc";
    request.format = ExportFormat::llmc;
    EXPECT_THAT(mistakes_of([&] { static_cast<void>(export_model(request)); }), HasSubstr("llm.c"));
  }
}

TEST(Export, OnlyQwen3ListsLayersWithAWindow) {
  model::GptShape shape = tiny_qwen3();
  shape.attention_window = 3;
  shape.tied_head = true;
  shape.long_layers = model::long_layers("LS", 2);
  Folder folder(shape);
  folder.config = config_json(shape);
  const test::ScratchDirectory directory;
  const std::string run = imported(folder.write(), directory);
  ExportRequest request = request_of(run, directory / "out");
  export_model(request);
  EXPECT_EQ(open_model(request.output).shape, shape);
  request.output = directory / "llmc";
  request.format = ExportFormat::llmc;
  EXPECT_THAT(mistakes_of([&] { static_cast<void>(export_model(request)); }),
              HasSubstr("llm.c's files, which store GPT-2, cannot express model.norm: rms_norm"));
}

TEST(Export, NamesThePartsThatNoFamilyHas) {
  model::GptShape shape = tiny_llama();
  shape.attention_window = 3;
  shape.long_layers = model::long_layers("LS", 2);
  shape.logit_softcap = 30;
  EXPECT_THAT(
      mistakes_of([&] { static_cast<void>(family_of(shape, "file")); }),
      HasSubstr("file: error: config.json of transformers cannot express this model. In the "
                "nearest family, llama, there is no model.logit_softcap: 30, no "
                "model.attention_window: 3."));
}

TEST(Export, KeepsTheRolesOfTheFolder) {
  Folder folder;
  folder.config = replaced(folder.config, R"("n_layer")",
                           R"("bos_token_id": 3, "eos_token_id": [4, 5], "pad_token_id": 6,
 "n_layer")");
  const test::ScratchDirectory directory;
  const std::string run = imported(folder.write(), directory);
  const Roles roles{.begin = 3, .ends = {4, 5}, .padding = 6};
  EXPECT_EQ(open_model(run).roles, roles);
  export_model(request_of(run, directory / "out"));
  EXPECT_EQ(open_model(directory / "out").roles, roles);
  EXPECT_THAT(test::bytes_of(directory / "out/generation_config.json"),
              HasSubstr("\"pad_token_id\": 6"));
}

TEST(Export, ACheckpointKeepsTheCapOfLogitsAndTheWindow) {
  model::GptShape shape = tiny_llama();
  shape.logit_softcap = 0.1;  // not exact as a binary fraction
  shape.attention_window = 3;
  EXPECT_EQ(shape_from(model_facts(shape), "run"), shape);
  shape.long_layers = model::long_layers("LS", 2);
  EXPECT_EQ(shape_from(model_facts(shape), "run"), shape);
  for (const char* wrong : {"LSL", "Lx", ""}) {
    auto facts = model_facts(shape);
    std::ranges::find(facts, "window_pattern", &record::NameValues::value_type::first)->second =
        wrong;
    EXPECT_THAT(mistakes_of([&] { static_cast<void>(shape_from(facts, "run")); }),
                HasSubstr("the model's window_pattern"));
  }
  shape.long_layers = {};
  shape.logit_softcap = 0;
  shape.attention_window = 0;
  EXPECT_EQ(shape_from(model_facts(shape), "run"), shape);
  for (const auto& [name, value] : model_facts(shape))
    EXPECT_TRUE(name != "logit_softcap" && name != "attention_window");
}

TEST(Export, GivesBackTheFileThatWasImported) {
  for (const bool tied : {true, false}) {
    model::GptShape shape = tiny_shape();
    shape.tied_head = tied;
    Folder folder(shape);
    const test::ScratchDirectory directory;
    const std::string run = imported(folder.write(), directory);
    const Exported done = export_model(request_of(run, directory / "out"));
    EXPECT_EQ(done.files, std::vector<std::string>{"model.safetensors"});
    const StoredModel before = open_model(folder.directory.path());
    const StoredModel after = open_model(directory / "out");
    EXPECT_EQ(after.shape, shape);
    EXPECT_EQ(values_of(before), values_of(after));
    // A second import and export gives the same bytes.
    const test::ScratchDirectory again;
    export_model(request_of(imported(directory / "out", again), again / "out"));
    EXPECT_EQ(test::bytes_of(again / "out/model.safetensors"),
              test::bytes_of(directory / "out/model.safetensors"));
  }
}

TEST(Export, GoesThroughLlmcAndBack) {
  const Folder folder;
  const test::ScratchDirectory directory;
  ExportRequest request = request_of(imported(folder.write(), directory), directory / "llmc");
  request.format = ExportFormat::llmc;
  export_model(request);
  const std::string file = directory / "llmc/model_00000000.bin";
  const StoredModel there = open_model(file);
  EXPECT_EQ(there.shape, tiny_shape());
  EXPECT_EQ(values_of(there), values_of(open_model(folder.directory.path())));
  // 128 rows, of which 119 are zero.
  const std::string bytes = test::bytes_of(file);
  const std::size_t used = 1024 + 9 * 6 * 4, unused = 119 * 6 * 4;
  EXPECT_EQ(bytes.substr(used, unused), std::string(unused, '\0'));
}

TEST(Export, RoundsToNearestEven) {
  const Folder folder;
  const test::ScratchDirectory directory;
  ExportRequest request = request_of(folder.write(), directory / "out");
  request.type = StoredType::bf16;
  export_model(request);
  const auto exact = values_of(open_model(folder.directory.path()));
  const auto rounded = values_of(open_model(directory / "out"));
  for (const auto& [name, values] : exact)
    for (std::size_t i = 0; i < values.size(); ++i)
      ASSERT_EQ(rounded.at(name)[i], static_cast<float>(Bf16(values[i]))) << name;
  EXPECT_THAT(test::bytes_of(directory / "out/config.json"), HasSubstr("bfloat16"));
}

TEST(Export, CutsIntoShardsWithAnIndex) {
  const Folder folder;
  const test::ScratchDirectory directory;
  ExportRequest request = request_of(folder.write(), directory / "out");
  request.shard_bytes = 1500;
  const Exported done = export_model(request);
  ASSERT_GT(done.files.size(), 2U);
  EXPECT_EQ(done.files.front(), fmt::format("model-00001-of-{:05}.safetensors", done.files.size()));
  for (const std::string& file : done.files)
    EXPECT_LT(fs::file_size(directory / ("out/" + file)), 3000U);
  EXPECT_EQ(values_of(open_model(directory / "out")),
            values_of(open_model(folder.directory.path())));
}

TEST(Export, GivesZeroBiasesToAModelWithoutAndTakesThemBack) {
  model::GptShape shape = tiny_shape();
  shape.bias = false;
  Folder folder;
  folder.config = replaced(folder.config, R"("n_layer")", R"("trireme_bias": false, "n_layer")");
  for (auto& [name, tensor] : folder.tensors)
    if (name.ends_with(".bias"))
      tensor.bytes.assign(tensor.bytes.size(), '\0');
  const test::ScratchDirectory directory;
  const std::string run = imported(folder.write(), directory);
  EXPECT_EQ(open_model(run).shape, shape);
  export_model(request_of(run, directory / "out"));
  EXPECT_EQ(open_model(directory / "out").shape, shape);
  EXPECT_EQ(values_of(open_model(directory / "out")), values_of(open_model(run)));
  ExportRequest request = request_of(run, directory / "llmc");
  request.format = ExportFormat::llmc;
  export_model(request);
  const auto there = values_of(open_model(directory / "llmc"));
  EXPECT_EQ(there.at("h.1.mlp.fc.bias"), std::vector<float>(24));
  EXPECT_EQ(there.at("h.1.mlp.fc.weight"), values_of(open_model(run)).at("h.1.mlp.fc.weight"));
}

TEST(Export, LeavesOutRowsOnlyOnRequest) {
  Folder folder({.layers = 1, .heads = 1, .channels = 4, .context = 4, .vocabulary = 260});
  const test::ScratchDirectory directory;
  const std::string run = imported(folder.write(), directory, true);
  export_model(request_of(run, directory / "whole"));
  EXPECT_EQ(open_model(directory / "whole").shape.vocabulary, 260);
  ExportRequest request = request_of(run, directory / "cut");
  request.rows = ExportRows::tokenizer;
  const Exported done = export_model(request);
  EXPECT_THAT(done.notes.at(0), HasSubstr("the last 4 of 260 rows"));
  const StoredModel cut = open_model(directory / "cut");
  EXPECT_EQ(cut.shape.vocabulary, 256);
  auto rows = values_of(open_model(run)).at("wte.weight");
  rows.resize(256 * 4);
  EXPECT_EQ(values_of(cut).at("wte.weight"), rows);
  EXPECT_EQ(cut.tokenizer, text::byte_tokenizer()->serialized()) << "bytes come back as bytes";
  const Folder without;
  ExportRequest none = request_of(without.write(), directory / "none");
  none.rows = ExportRows::tokenizer;
  EXPECT_THAT(mistakes_of([&] { export_model(none); }), HasSubstr("no tokenizer"));
}

TEST(Export, TellsThatSymbolsOfSentencePieceMakeOtherTokens) {
  text::Vocabulary vocabulary;
  vocabulary.characters = true;
  vocabulary.prefix = text::SpacePrefix::text;
  for (int id = 0; id < 256; ++id)
    vocabulary.tokens.push_back({.bytes = std::string(1, static_cast<char>(id)), .fallback = true});
  vocabulary.tokens.push_back({.bytes = "<think>", .added = true});
  for (const bool added : {true, false}) {
    vocabulary.tokens.back().added = added;
    Folder folder({.layers = 1, .heads = 1, .channels = 4, .context = 4, .vocabulary = 257});
    const test::ScratchDirectory directory;
    ImportRequest request{
        .source = folder.write(), .output = directory / "run", .tokenizer = {}, .build = {}};
    request.tokenizer = text::make_tokenizer(vocabulary, "here");
    static_cast<void>(import_model(request, *comm::make_self_world()));
    const Exported done = export_model(request_of(request.output, directory / "out"));
    EXPECT_THAT(done.notes,
                testing::Contains(HasSubstr("such as \"<think>\"")).Times(added ? 1 : 0));
  }
}

TEST(Export, TouchesNothingThatIsThere) {
  const Folder folder;
  const test::ScratchDirectory directory;
  fs::create_directory(directory / "full");
  test::write_bytes(directory / "full/mine", "precious");
  test::write_bytes(directory / "file", "precious");
  for (const char* name : {"full", "file"})
    EXPECT_THAT(mistakes_of([&] { export_model(request_of(folder.write(), directory / name)); }),
                HasSubstr("this is there already"));
  EXPECT_EQ(test::bytes_of(directory / "full/mine"), "precious");
  EXPECT_EQ(test::bytes_of(directory / "file"), "precious");
  EXPECT_EQ(std::distance(fs::directory_iterator(directory.path()), {}), 2);
  fs::create_directory(directory / "empty");
  export_model(request_of(folder.directory.path(), directory / "empty"));
  EXPECT_TRUE(fs::exists(directory / "empty/model.safetensors"));
}

TEST(Export, RefusesADamagedCheckpointAndLeavesNothing) {
  const Folder folder;
  const test::ScratchDirectory directory;
  const std::string run = imported(folder.write(), directory);
  const StoredModel stored = open_model(run);
  for (const std::size_t victim : {std::size_t{0}, std::size_t{4}}) {  // straight and transposed
    const Extent& extent = stored.tensors.at(victim).extents.at(0);
    const std::string file = stored.files.at(0), good = test::bytes_of(file);
    std::string bad = good;
    bad[static_cast<std::size_t>(extent.offset) + 1] ^= 4;
    test::write_bytes(file, bad);
    EXPECT_THAT(mistakes_of([&] { export_model(request_of(run, directory / "out")); }),
                HasSubstr("the checkpoint is damaged: " + stored.tensors[victim].parameter));
    EXPECT_EQ(std::distance(fs::directory_iterator(directory.path()), {}), 1) << "the run alone";
    test::write_bytes(file, good);
  }
}

TEST(Export, CarriesHashesThatReadersCompare) {
  for (const StoredType type : {StoredType::f32, StoredType::bf16}) {
    const Folder folder(tiny_nanochat());
    const test::ScratchDirectory directory;
    ExportRequest request = request_of(folder.write(), directory / "out");
    request.type = type;
    export_model(request);
    const StoredModel stored = open_model(request.output);
    for (const StoredTensor& tensor : stored.tensors) EXPECT_TRUE(tensor.content_hash);
    imported(request.output, directory);
    const std::string file = request.output + "/model.safetensors";
    std::string bytes = test::bytes_of(file);
    bytes.back() ^= 4;
    test::write_bytes(file, bytes);
    fs::remove_all(directory / "run");
    EXPECT_THAT(mistakes_of([&] { imported(request.output, directory); }),
                HasSubstr("out: error: the model is damaged: "));
  }
}

/// A GGUF file, read back.
struct GgufFile {
  std::map<std::string, std::string> keys;  ///< numbers and texts; arrays by their size
  std::string last_key;
  std::map<std::string, std::pair<std::vector<std::uint64_t>, std::string>> tensors;  ///< and bytes
};

GgufFile read_gguf(const std::string& path) {
  const std::string bytes = test::bytes_of(path);
  std::size_t at = 0;
  const auto number = [&]<class T>(T value) {
    std::memcpy(&value, bytes.data() + at, sizeof value);
    at += sizeof value;
    return value;
  };
  const auto text = [&] {
    const auto size = number(std::uint64_t{});
    at += size;
    return bytes.substr(at - size, size);
  };
  GgufFile file;
  EXPECT_EQ(number(std::uint32_t{}), 0x46554747U);
  EXPECT_EQ(number(std::uint32_t{}), 3U);
  const auto tensors = number(std::uint64_t{}), keys = number(std::uint64_t{});
  for (std::uint64_t i = 0; i < keys; ++i) {
    file.last_key = text();
    const auto type = number(std::uint32_t{});
    std::string& value = file.keys[file.last_key];
    if (type == 9) {
      const auto inner = number(std::uint32_t{});
      const auto count = number(std::uint64_t{});
      for (std::uint64_t j = 0; j < count; ++j)
        value +=
            (j > 0 ? "|" : "") + (inner == 8 ? text() : std::to_string(number(std::int32_t{})));
    } else {
      value = type == 8   ? text()
              : type == 7 ? std::to_string(number(std::uint8_t{}))
              : type == 6 ? fmt::format("{}", number(float{}))
                          : std::to_string(number(std::uint32_t{}));
    }
  }
  std::vector<std::pair<std::string, std::uint64_t>> places;
  for (std::uint64_t i = 0; i < tensors; ++i) {
    const std::string name = text();
    auto& shape = file.tensors[name].first;
    for (auto extents = number(std::uint32_t{}); extents > 0; --extents)
      shape.push_back(number(std::uint64_t{}));
    shape.push_back(number(std::uint32_t{}));  // the type
    places.emplace_back(name, number(std::uint64_t{}));
  }
  const std::size_t data = (at + 31) / 32 * 32;
  for (std::size_t i = 0; i < places.size(); ++i)
    file.tensors[places[i].first].second = bytes.substr(
        data + places[i].second,
        i + 1 < places.size() ? places[i + 1].second - places[i].second : std::string::npos);
  return file;
}

TEST(Export, WritesGgufWithSizesVocabularyAndTensors) {
  model::GptShape shape = tiny_llama();
  shape.vocabulary = 260;
  Folder folder(shape);
  folder.config = replaced(folder.config, R"("vocab_size")",
                           R"("bos_token_id": 1, "eos_token_id": [4, 5], "vocab_size")");
  const test::ScratchDirectory directory;
  ExportRequest request = request_of(imported(folder.write(), directory, true), directory / "out");
  request.format = ExportFormat::gguf;
  request.type = StoredType::q8_0;
  const Exported done = export_model(request);
  EXPECT_EQ(done.files, std::vector<std::string>{"model.gguf"});
  EXPECT_THAT(done.notes, testing::Contains(HasSubstr("16 tensors are stored as fp16")));
  const GgufFile file = read_gguf(directory / "out/model.gguf");
  EXPECT_EQ(file.keys.at("general.architecture"), "llama");
  EXPECT_EQ(file.keys.at("llama.attention.head_count_kv"), "1");
  EXPECT_EQ(file.keys.at("llama.rope.freq_base"), "500000");
  EXPECT_EQ(file.keys.at("tokenizer.ggml.pre"), "gpt-2");
  EXPECT_THAT(file.keys.at("tokenizer.ggml.tokens"), testing::EndsWith("[PAD258]|[PAD259]"));
  EXPECT_THAT(file.keys.at("tokenizer.ggml.token_type"), testing::EndsWith("1|5|5|5|5"));
  EXPECT_EQ(file.keys.at("tokenizer.ggml.bos_token_id"), "1");
  EXPECT_EQ(file.keys.at("tokenizer.ggml.eos_token_id"), "4");
  EXPECT_EQ(file.keys.at("tokenizer.ggml.eot_token_id"), "5");
  EXPECT_EQ(file.keys.at("tokenizer.ggml.add_bos_token"), "1");
  EXPECT_EQ(file.keys.at("trireme.weights_hash").size(), 16U);
  EXPECT_EQ(file.last_key, "tokenizer.ggml.add_bos_token");  // keys are in the order of gguf.cpp
  EXPECT_EQ(file.tensors.size(), 2U * 9 + 4);
  // Rows of 8 elements do not fill blocks of Q8_0.
  EXPECT_EQ(file.tensors.at("blk.1.attn_q.weight").first, (std::vector<std::uint64_t>{8, 8, 1}));
  EXPECT_EQ(file.tensors.at("blk.1.attn_norm.weight").first, (std::vector<std::uint64_t>{8, 0}));
  EXPECT_EQ(file.tensors.at("rope_freqs.weight").first, (std::vector<std::uint64_t>{2, 0}));
  // GGUF rotates neighbouring rows of a head: the first head has rows 0, 2, 1, 3.
  const auto values = values_of(open_model(request.source)).at("h.1.attn.qkv.weight");
  const std::string& stored = file.tensors.at("blk.1.attn_q.weight").second;
  for (std::size_t row : {0U, 1U, 2U, 3U}) {
    std::uint16_t half = 0;
    std::memcpy(&half, stored.data() + 2 * (8 * row), sizeof half);
    EXPECT_EQ(half, float_to_half(values[8 * (row % 2 * 2 + row / 2)])) << row;
  }
}

TEST(Export, RefusesWhatGgufCannotExpress) {
  const test::ScratchDirectory directory;
  const auto told = [&](const model::GptShape& shape) {
    const Folder folder(shape);
    ExportRequest request = request_of(folder.write(), directory / "out");
    request.format = ExportFormat::gguf;
    return mistakes_of([&] { export_model(request); });
  };
  EXPECT_THAT(told(tiny_nanochat()), HasSubstr("a GGUF file cannot express this model"));
  EXPECT_THAT(told(tiny_mistral()), HasSubstr("there is no model.attention_window: 3"));
  model::GptShape shape = tiny_shape();
  shape.activation = model::Activation::squared_relu;
  Folder folder(shape);
  folder.config = config_json(shape);
  ExportRequest request = request_of(folder.write(), directory / "out");
  request.format = ExportFormat::gguf;
  EXPECT_THAT(mistakes_of([&] { export_model(request); }), HasSubstr("model.activation"));
  request.format = ExportFormat::huggingface;
  request.type = StoredType::q8_0;
  EXPECT_THAT(mistakes_of([&] { export_model(request); }),
              HasSubstr("--dtype q8_0 is only for --format gguf"));
}

TEST(StoredType, RoundsToHalfAsTheNearestEvenAndBlocksAsGgmlDoes) {
  for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float value = half_to_float(half);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(half_to_float(float_to_half(value))));
      continue;
    }
    ASSERT_EQ(float_to_half(value), half);
    const float next = half_to_float(static_cast<std::uint16_t>(half + 1));
    if ((bits & 0x7fffU) < 0x7bff) {
      const float middle = value + (next - value) / 2;
      ASSERT_EQ(float_to_half(middle), half % 2 == 0 ? half : half + 1) << bits;
      ASSERT_EQ(float_to_half(std::nextafter(middle, next)), half + 1) << bits;
    }
  }
  EXPECT_EQ(float_to_half(65520.0F), 0x7c00);
  std::vector<float> values(32, -1.0F);
  values[3] = 2.54F;
  std::vector<std::byte> bytes;
  from_fp32(StoredType::q8_0, values, bytes);
  ASSERT_EQ(bytes.size(), 34U);
  EXPECT_EQ(static_cast<std::int8_t>(bytes[5]), 127);
  EXPECT_EQ(static_cast<std::int8_t>(bytes[2]), -50);
}

TEST(Export, FindsTheCheckpointOfAStep) {
  const Folder folder;
  const test::ScratchDirectory directory;
  const std::string run = imported(folder.write(), directory);
  ExportRequest request = request_of(run, directory / "out");
  request.step = 5;
  EXPECT_THAT(mistakes_of([&] { export_model(request); }),
              HasSubstr("no checkpoint of step 5. Available steps: 0"));
  request.step = 0;
  EXPECT_EQ(export_model(request).source, run + "/checkpoints/step-00000000");
  request.source = run + "/checkpoints/step-00000000";
  request.output += "-again";
  EXPECT_THAT(mistakes_of([&] { export_model(request); }), HasSubstr("and this has none"));
}

TEST(Import, MakesACheckpointOfWeightsAlone) {
  const Folder folder;
  const test::ScratchDirectory directory;
  const std::string run = imported(folder.write(), directory);
  const record::CheckpointReader reader(run + "/checkpoints/step-00000000");
  EXPECT_EQ(reader.states(), std::vector<std::string>{"master"});
  EXPECT_EQ(reader.facts().step, 0);
  const auto facts = origin_facts(reader.facts().more);
  ASSERT_EQ(facts.size(), 3U);
  EXPECT_EQ(facts[0].second, folder.directory.path());
  EXPECT_EQ(facts[1].second, "huggingface");
  std::vector<std::uint64_t> hashes;
  for (const std::string& name : reader.parameters())
    hashes.push_back(reader.content_hash("master", name));
  EXPECT_EQ(facts[2].second,
            fmt::format("{:016x}", weights_hash(model::parameter_table(tiny_shape()), hashes)));
}

TEST(Import, AsksForATokenizer) {
  const Folder folder({.layers = 1, .heads = 1, .channels = 4, .context = 4, .vocabulary = 40});
  const test::ScratchDirectory directory;
  const auto world = comm::make_self_world();
  ImportRequest request{
      .source = folder.write(), .output = directory / "run", .tokenizer = {}, .build = {}};
  const auto told = [&] { return mistakes_of([&] { import_model(request, *world); }); };
  EXPECT_THAT(told(), HasSubstr("there is no tokenizer next to the weights"));
  request.tokenizer = text::byte_tokenizer();
  EXPECT_THAT(told(),
              HasSubstr("the model's vocabulary of 40 is smaller than the tokenizer's 256 tokens"));
  EXPECT_EQ(std::distance(fs::directory_iterator(directory.path()), {}), 0);
}

}  // namespace
}  // namespace trireme::weights
