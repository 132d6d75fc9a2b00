// SPDX-License-Identifier: Apache-2.0
#include "weights/llmc.hpp"

#include <array>
#include <cstring>
#include <vector>

#include <gmock/gmock.h>

#include "weights/folder.hpp"
#include "weights/open.hpp"
#include "weights/tensor_files.hpp"

namespace trireme::weights {
namespace {

using ::testing::HasSubstr;

/// In the format of llm.c, in the order of its struct: a vocabulary of 9 in 16 rows, of which the
/// last 7 are unused.
std::string model_file(std::int32_t version = 3) {
  LlmcHeader header{20240326, version, 5, 9, 2, 2, 6, 16};
  std::string file(reinterpret_cast<const char*>(header.data()), sizeof header);
  const auto table = model::parameter_table(tiny_shape());
  const auto put = [&](float value) {
    std::uint32_t raw;
    std::memcpy(&raw, &value, sizeof raw);
    const auto upper = static_cast<std::uint16_t>(raw >> 16U);
    if (version == 3)
      file.append(reinterpret_cast<const char*>(&raw), 4);
    else
      file.append(reinterpret_cast<const char*>(&upper), 2);
  };
  const char* order[] = {
      "wte.weight",          "wpe.weight",        "h.#.ln_1.weight",      "h.#.ln_1.bias",
      "h.#.attn.qkv.weight", "h.#.attn.qkv.bias", "h.#.attn.proj.weight", "h.#.attn.proj.bias",
      "h.#.ln_2.weight",     "h.#.ln_2.bias",     "h.#.mlp.fc.weight",    "h.#.mlp.fc.bias",
      "h.#.mlp.proj.weight", "h.#.mlp.proj.bias", "ln_f.weight",          "ln_f.bias"};
  for (const std::string name : order)
    for (const char* layer : {"0", "1"}) {
      std::string ours = name;
      if (const auto hash = ours.find('#'); hash != std::string::npos)
        ours.replace(hash, 1, layer);
      else if (*layer == '1')
        continue;
      std::size_t p = 0;
      while (table[p].name != ours) ++p;
      for (std::int64_t i = 0; i < table[p].elements(); ++i) put(value_of(p, i));
      if (ours == "wte.weight")
        for (int i = 0; i < 7 * 6; ++i) put(1e30F);
    }
  return file;
}

std::string llmc_refusal(const std::string& bytes) {
  const test::ScratchDirectory directory;
  test::write_bytes(directory / "model.bin", bytes);
  return mistakes_of([&] { static_cast<void>(open_llmc(directory / "model.bin")); });
}

std::string with_word(std::size_t word, std::int32_t value) {
  std::string file = model_file();
  std::memcpy(file.data() + 4 * word, &value, sizeof value);
  return file;
}

TEST(Llmc, ReadsEveryParameterInItsOrder) {
  for (const std::int32_t version : {3, 5}) {
    const test::ScratchDirectory directory;
    test::write_bytes(directory / "model_00000010.bin", model_file(version));
    for (const std::string& path : {directory.path(), directory / "model_00000010.bin"}) {
      const StoredModel model = open_model(path);
      EXPECT_EQ(model.shape, tiny_shape());
      EXPECT_EQ(model.format, "llm.c");
      TensorReader reader(model);
      for (std::size_t p = 0; p < model.tensors.size(); ++p) {
        std::vector<float> values(static_cast<std::size_t>(model.tensors[p].elements()));
        reader.read(model.tensors[p], 0, view_of(values.data(), std::ssize(values)));
        for (std::size_t i = 0; i < values.size(); ++i) {
          float expected = value_of(p, static_cast<std::int64_t>(i));
          if (version == 5) {  // as model_file() cut it
            std::uint32_t raw;
            std::memcpy(&raw, &expected, sizeof raw);
            raw &= 0xffff0000U;
            std::memcpy(&expected, &raw, sizeof raw);
          }
          ASSERT_EQ(values[i], expected) << model.tensors[p].parameter << " " << i;
        }
      }
    }
  }
}

TEST(Llmc, RefusesHeadersThatLie) {
  EXPECT_THAT(llmc_refusal("short"), HasSubstr("5 bytes"));
  EXPECT_THAT(llmc_refusal(with_word(0, 20240520)), HasSubstr("the magic number is 20240520"));
  EXPECT_THAT(llmc_refusal(with_word(1, 4)), HasSubstr("version 4; known are 3"));
  EXPECT_THAT(llmc_refusal(with_word(2, 0)), HasSubstr("at byte 8: 0 tokens of context"));
  EXPECT_THAT(llmc_refusal(with_word(3, -1)), HasSubstr("at byte 12: -1 tokens in the vocabulary"));
  EXPECT_THAT(llmc_refusal(with_word(4, 1 << 30)), HasSubstr("at byte 16"));
  EXPECT_THAT(llmc_refusal(with_word(5, 4)), HasSubstr("4 heads do not divide 6 channels"));
  EXPECT_THAT(llmc_refusal(with_word(7, 8)),
              HasSubstr("8 rows of the embedding for a vocabulary of"));
  EXPECT_THAT(llmc_refusal(with_word(7, 17)), HasSubstr("17 rows of the embedding needs"));
  EXPECT_THAT(llmc_refusal(model_file() + "x"), HasSubstr("bytes; a fp32 model of 2 layers"));
  std::string cut = model_file();
  cut.pop_back();
  EXPECT_THAT(llmc_refusal(cut), HasSubstr("bytes; a fp32 model of 2 layers"));
}

TEST(Llmc, ReportsAllWrongSizesAtOnce) {
  std::string file = with_word(4, 0);
  const std::int32_t none = 0;
  std::memcpy(file.data() + 24, &none, sizeof none);
  const std::string told = llmc_refusal(file);
  EXPECT_THAT(told, HasSubstr("0 layers"));
  EXPECT_THAT(told, HasSubstr("0 channels"));
}

TEST(Llmc, AsksWhichOfSeveralModels) {
  const test::ScratchDirectory directory;
  test::write_bytes(directory / "a.bin", model_file());
  test::write_bytes(directory / "b.bin", model_file());
  test::write_bytes(directory / "tokens.bin", "something else");
  EXPECT_THAT(mistakes_of([&] { static_cast<void>(open_model(directory.path())); }),
              HasSubstr("2 model files of llm.c, such as a.bin and b.bin"));
}

TEST(Llmc, RoundsRowsUp) {
  EXPECT_EQ(llmc_rows(50257), 50304);
  EXPECT_EQ(llmc_rows(128), 128);
  EXPECT_EQ(llmc_rows(1), 128);
}

}  // namespace
}  // namespace trireme::weights
