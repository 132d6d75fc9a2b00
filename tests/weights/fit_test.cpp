// SPDX-License-Identifier: Apache-2.0
#include "weights/fit.hpp"

#include <gmock/gmock.h>

#include "text/vocabulary.hpp"

#include "weights/folder.hpp"
#include "weights/open.hpp"

namespace trireme::weights {
namespace {

using ::testing::HasSubstr;

ExpectedModel expected(const model::GptShape& shape, InitialRows rows = InitialRows::exact) {
  return {shape, rows, nullptr};
}

std::string told(const StoredModel& stored, const ExpectedModel& one) {
  std::string text;
  for (const Diagnostic& finding : find_differences(stored, one)) text += to_string(finding) + "\n";
  return text;
}

TEST(Misfits, AreNoneForTheSameModel) {
  const Folder folder;
  const StoredModel stored = open_model(folder.write());
  model::GptShape shape = tiny_shape();
  EXPECT_EQ(told(stored, expected(shape)), "");
  shape.dropout = 0.5;  // free
  EXPECT_EQ(told(stored, expected(shape)), "");
}

TEST(Misfits, AreReportedAllAtOnceWithBothPlaces) {
  const Folder folder;
  const StoredModel stored = open_model(folder.write());
  const model::GptShape other{.layers = 3,
                              .heads = 4,
                              .channels = 8,
                              .context = 6,
                              .vocabulary = 8,
                              .bias = false,
                              .tied_head = false};
  const std::string text = told(stored, expected(other));
  const std::string file = folder.directory / "config.json";
  EXPECT_THAT(text, HasSubstr("error: model.layers: 3 here, but 2 in " + file));
  EXPECT_THAT(text, HasSubstr("model.heads: 4 here, but 2 in"));
  EXPECT_THAT(text, HasSubstr("model.channels: 8 here, but 6 in"));
  EXPECT_THAT(text, HasSubstr("model.bias: false here, but true in"));
  EXPECT_THAT(text, HasSubstr("model.tied_head: false here, but true in"));
  EXPECT_THAT(text, HasSubstr("model.context: 6 positions here, but 5 in " + file +
                              "; run.initial_rows: pad would add"));
  EXPECT_THAT(text, HasSubstr("model.vocabulary: 8 tokens here, but 9 in " + file +
                              "; run.initial_rows: cut would leave out"));
}

TEST(Misfits, NameTheParts) {
  const Folder folder(tiny_llama());
  const StoredModel stored = open_model(folder.write());
  model::GptShape shape = tiny_llama();
  shape.context = 64;  // rotary positions have no rows
  EXPECT_EQ(told(stored, expected(shape)), "");
  shape.rotary_theta = 10000;
  shape.rotary_scaling.low_freq_factor = 2;
  shape.norm_epsilon = 1e-5;
  shape.grouped_heads = 0;
  shape.hidden = 9;
  shape.head_width = 6;
  std::string text = told(stored, expected(shape));
  EXPECT_THAT(text, HasSubstr("model.rotary_theta: 10000 here, but 500000 in"));
  EXPECT_THAT(text, HasSubstr("model.rotary_scaling.low_freq_factor: 2 here, but 1 in"));
  EXPECT_THAT(text, HasSubstr("model.norm_epsilon: 1e-05 here, but 1e-06 in"));
  EXPECT_THAT(text, HasSubstr("model.key_value_heads: 2 here, but 1 in"));
  EXPECT_THAT(text, HasSubstr("model.head_channels: 6 here, but 4 in"));
  EXPECT_THAT(text, HasSubstr("model.mlp_channels: 9 here, but 7 in"));
  text = told(stored, expected(tiny_nanochat()));
  EXPECT_THAT(text, HasSubstr("model.norm_gain: false here, but true in"));
  EXPECT_THAT(text, HasSubstr("model.embedding_norm: true here, but false in"));
  EXPECT_THAT(text, HasSubstr("model.qk_norm: without_gain here, but none in"));
  text = told(stored, expected(tiny_shape()));
  EXPECT_THAT(text, HasSubstr("model.norm: layer_norm here, but rms_norm in"));
  EXPECT_THAT(text, HasSubstr("model.activation: gelu here, but swiglu in"));
  EXPECT_THAT(text, HasSubstr("model.positions: learned here, but rotary in"));
}

TEST(Misfits, RowsAreWhatTheOptionAllows) {
  const Folder folder;
  const StoredModel stored = open_model(folder.write());
  model::GptShape more = tiny_shape(), less = tiny_shape(), both = tiny_shape();
  more.vocabulary = 12;
  less.context = 3;
  both.vocabulary = 12;
  both.context = 3;
  for (const auto& [shape, rows, good] : {std::tuple{more, InitialRows::exact, false},
                                          {more, InitialRows::cut, false},
                                          {more, InitialRows::pad, true},
                                          {more, InitialRows::fit, true},
                                          {less, InitialRows::exact, false},
                                          {less, InitialRows::pad, false},
                                          {less, InitialRows::cut, true},
                                          {less, InitialRows::fit, true},
                                          {both, InitialRows::pad, false},
                                          {both, InitialRows::cut, false},
                                          {both, InitialRows::fit, true}})
    EXPECT_EQ(told(stored, expected(shape, rows)).empty(), good)
        << shape.vocabulary << " " << shape.context << " " << static_cast<int>(rows);
}

TEST(Misfits, CompareTheBytesOfEveryToken) {
  const Folder folder({.layers = 1, .heads = 1, .channels = 4, .context = 4, .vocabulary = 300});
  text::Vocabulary vocabulary;
  for (int byte = 0; byte < 256; ++byte)
    vocabulary.tokens.push_back({std::string(1, static_cast<char>(byte)), false});
  vocabulary.tokens.push_back({"ab", false});
  vocabulary.merges = {{'a', 'b'}};
  StoredModel stored = open_model(folder.write());
  stored.tokenizer = text::make_tokenizer(vocabulary, "test")->serialized();
  stored.tokenizer_place = "there/tokenizer.json";
  ExpectedModel one = expected(folder.shape);
  one.tokenizer = text::byte_tokenizer();
  EXPECT_EQ(told(stored, one), "") << "the tokens that both have are the same";
  std::swap(vocabulary.tokens['x'], vocabulary.tokens['y']);
  one.tokenizer = text::make_tokenizer(vocabulary, "test");
  const std::string text = told(stored, one);
  EXPECT_THAT(text, HasSubstr("error: data.tokenizer: not the tokenizer"));
  EXPECT_THAT(text, HasSubstr("there/tokenizer.json: 2 of 257 tokens differ"));
  EXPECT_THAT(text, HasSubstr(R"(token 120 is "y" here and "x" there)"));
}

}  // namespace
}  // namespace trireme::weights
