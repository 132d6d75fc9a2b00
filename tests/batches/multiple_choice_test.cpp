// SPDX-License-Identifier: Apache-2.0
#include "batches/multiple_choice.hpp"

#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "tokens/scratch.hpp"

namespace trireme::batches {
namespace {

using Tokens = std::vector<std::int32_t>;

std::string numbers_of(const std::vector<int>& numbers) {
  std::string bytes;
  for (const int number : numbers) {
    bytes += static_cast<char>(number & 0xff);
    bytes += static_cast<char>(number >> 8);
  }
  return bytes;
}

std::string header_of(std::int32_t magic, std::int32_t version, std::int32_t examples) {
  std::string bytes(1024, '\0');
  int at = 0;
  for (const std::int32_t word : {magic, version, examples, 64}) {
    for (int shift = 0; shift < 32; shift += 8)
      bytes[static_cast<std::size_t>(at++)] = static_cast<char>(word >> shift & 0xff);
  }
  return bytes;
}

/// Written by hand in the format of dev/data/data_common.py of llm.c.
const std::vector<int> example_0 = {65535, 36, 0, 2, 3, 3, 10, 20, 300, 2, 7, 8, 1, 9, 3, 1, 2, 3};
const std::vector<int> example_1 = {65535, 22, 1, 0, 2, 1, 5, 1, 6, 1, 50256};

class Questions : public tokens::Scratch {
 protected:
  std::vector<Question> read(const std::string& content) {
    return read_questions(write("file", content), requirements);
  }
  std::string refused(const std::string& content) {
    return user_error([&] { read(content); });
  }
  QuestionRequirements requirements{.vocabulary = 50257, .context = 8};
};

class Hellaswag : public Questions {};

TEST_F(Hellaswag, IsReadAsLlmCWritesIt) {
  const auto questions =
      read(header_of(20240522, 1, 2) + numbers_of(example_0) + numbers_of(example_1));
  ASSERT_EQ(questions.size(), 2U);
  EXPECT_EQ(questions[0].context, (Tokens{10, 20, 300}));
  EXPECT_EQ(questions[0].choices, (std::vector<Tokens>{{7, 8}, {9}, {1, 2, 3}}));
  EXPECT_EQ(questions[0].label, 2);
  EXPECT_EQ(questions[1].choices, (std::vector<Tokens>{{6}, {50256}}));
  EXPECT_EQ(questions[1].label, 0);
}

TEST_F(Hellaswag, NamesTheWrongExampleAndItsPlace) {
  const std::string good = header_of(20240522, 1, 2);
  EXPECT_NE(refused("short").find("5 bytes are not an evaluation file"), std::string::npos);
  EXPECT_NE(refused(header_of(20240520, 1, 0)).find("magic 20240520"), std::string::npos);
  EXPECT_NE(refused(header_of(20240522, 2, 0)).find("version 2"), std::string::npos);
  EXPECT_NE(refused(header_of(20240522, 1, 0)).find("no questions"), std::string::npos);
  EXPECT_NE(
      refused(good + numbers_of(example_0)).find("example 1, at byte 1060: ends in the middle"),
      std::string::npos);
  EXPECT_NE(refused(good + numbers_of(example_0) + numbers_of(example_1) + "x")
                .find("1 bytes follow the 2 examples"),
            std::string::npos);
  auto changed = [&](std::size_t place, int number) {
    std::vector<int> example = example_0;
    example[place] = number;
    return refused(good + numbers_of(example) + numbers_of(example_1));
  };
  EXPECT_NE(changed(0, 1).find("example 0, at byte 1024: does not begin with 65535"),
            std::string::npos);
  EXPECT_NE(changed(1, 34).find("ends in the middle"), std::string::npos);
  EXPECT_NE(changed(1, 38).find("has 2 bytes after its choices"), std::string::npos);
  EXPECT_NE(changed(1, 7).find("states a size of 7 bytes"), std::string::npos);
  EXPECT_NE(changed(1, 60000).find("states a size of 60000 bytes"), std::string::npos);
  EXPECT_NE(changed(2, 4).find("has the index 4"), std::string::npos);
  EXPECT_NE(changed(3, 3).find("the label 3 names none of 3 choices"), std::string::npos);
  EXPECT_NE(changed(6, 60000).find("the context holds token 60000"), std::string::npos);
  EXPECT_NE(changed(11, 50257).find("choice 0 holds token 50257"), std::string::npos);
  requirements.context = 2;
  EXPECT_NE(refused(good + numbers_of(example_0) + numbers_of(example_1))
                .find("choice 2 has 3 tokens, and the model's context 2"),
            std::string::npos);
}

TEST_F(Hellaswag, EveryCutOfAFileIsRefused) {
  const std::string whole =
      header_of(20240522, 1, 2) + numbers_of(example_0) + numbers_of(example_1);
  for (std::size_t size = 0; size < whole.size(); ++size)
    EXPECT_FALSE(refused(whole.substr(0, size)).empty()) << size;
}

class JsonLines : public Questions {
 protected:
  JsonLines() {
    requirements = {.format = ChoiceFormat::jsonl,
                    .vocabulary = 256,
                    .context = 64,
                    .tokenizer = tokenizer_.get()};
  }
  static Tokens bytes(std::string_view text) {
    Tokens tokens;
    for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
    return tokens;
  }
  std::shared_ptr<const text::Tokenizer> tokenizer_ = text::byte_tokenizer();
};

TEST_F(JsonLines, TakesTheNamesOfTheKnownSetsAndJoinsWithASpace) {
  const auto questions = read(
      "{\"context\": \"It is\", \"choices\": [\"hot\", \" cold\"], \"label\": 1}\n\n"
      "{\"ctx\": \"So \", \"endings\": [\"a\", \"b\", \"c\"], \"gold\": 2}\r\n"
      "{\"query\": \"x\", \"choices\": [\"y\", \"z\"], \"label\": \"0\"}");
  ASSERT_EQ(questions.size(), 3U);
  EXPECT_EQ(questions[0].context, bytes("It is"));
  EXPECT_EQ(questions[0].choices, (std::vector<Tokens>{bytes(" hot"), bytes(" cold")}));
  EXPECT_EQ(questions[0].label, 1);
  EXPECT_EQ(questions[1].context, bytes("So"));
  EXPECT_EQ(questions[1].choices, (std::vector<Tokens>{bytes(" a"), bytes(" b"), bytes(" c")}));
  EXPECT_EQ(questions[1].label, 2);
  EXPECT_EQ(questions[2].label, 0);
}

TEST_F(JsonLines, GivesSpaceAtTheEndOfAContextToTheChoices) {
  const auto questions = read(
      "{\"ctx\": \"So\\u00a0 \\n\", \"choices\": [\"a\", \"  b\"], \"label\": 0}\n"
      "{\"ctx\": \"x\", \"choices\": [\"\\u00a0y\", \"\\u00e0\"], \"label\": 0}");
  EXPECT_EQ(questions[0].context, bytes("So"));
  EXPECT_EQ(questions[0].choices,
            (std::vector<Tokens>{bytes("\xc2\xa0 \na"), bytes("\xc2\xa0 \n  b")}));
  EXPECT_EQ(questions[1].choices, (std::vector<Tokens>{bytes("\xc2\xa0y"), bytes(" \xc3\xa0")}));
}

TEST_F(JsonLines, CountsTheCharactersOfChoicesWithoutSpacesBeforeThem) {
  const auto questions =
      read("{\"ctx\": \"So \", \"choices\": [\"a b\", \"  \\u00e9\\u4f60\"], \"label\": 0}");
  EXPECT_EQ(questions[0].lengths, (std::vector<std::int64_t>{3, 2}));
}

/// The bytes, with 2 before a text, 0 for "e f" and 1 for "</s>".
std::shared_ptr<const text::Tokenizer> with_beginning() {
  std::string serialized =
      "trireme tokenizer 1\nkind bpe\npattern llama3\nunicode 16.0.0\nrule listed\n"
      "whole_pieces no\nend_of_text 2\ntokens 259\n+652066\n*3c2f733e\n*3c733e\n";
  for (int b = 0; b < 256; ++b) serialized += fmt::format("{:02x}\n", b);
  return text::tokenizer_from(serialized + "merges 0\nbegin_of_text 2\n");
}

TEST_F(JsonLines, EncodesChoicesTogetherWithTheContextAfterWhatBeginsAText) {
  tokenizer_ = with_beginning();
  requirements.tokenizer = tokenizer_.get();
  requirements.vocabulary = 259;
  const auto questions = read(
      "{\"ctx\": \"de\", \"choices\": [\"fi\", \"gh\"], \"label\": 0}\n"
      "{\"ctx\": \"\", \"choices\": [\"f\", \"gh\"], \"label\": 0}");
  EXPECT_EQ(questions[0].context, (Tokens{2, 'd' + 3, 'e' + 3}));
  // "de fi" is d, "e f" and i: the tokens after the length of the context belong to the choice.
  EXPECT_EQ(questions[0].choices, (std::vector<Tokens>{{'i' + 3}, {' ' + 3, 'g' + 3, 'h' + 3}}));
  EXPECT_EQ(questions[1].context, Tokens{2});
  EXPECT_EQ(questions[1].choices, (std::vector<Tokens>{{'f' + 3}, {'g' + 3, 'h' + 3}}));
}

TEST_F(JsonLines, ReportsEveryWrongLineAtOnce) {
  const std::string said = refused(
      "{\"context\": \"a\", \"choices\": [\"b\", \"c\"], \"label\": 0}\n"
      "nothing\n"
      "{\"choices\": [\"b\", \"c\"], \"label\": 0}\n"
      "{\"context\": 3, \"choices\": [\"b\", \"c\"], \"label\": 0}\n"
      "{\"context\": \"a\", \"choices\": \"b\", \"label\": 0}\n"
      "{\"context\": \"a\", \"choices\": [\"b\"], \"label\": 0}\n"
      "{\"context\": \"a\", \"choices\": [\"b\", 1], \"label\": 0}\n"
      "{\"context\": \"a\", \"choices\": [\"b\", \"\"], \"label\": 0}\n"
      "{\"context\": \"a\", \"choices\": [\"b\", \"c\"]}\n"
      "{\"context\": \"a\", \"choices\": [\"b\", \"c\"], \"label\": -1}\n"
      "{\"context\": \"a\", \"choices\": [\"b\", \"c\"], \"label\": \"B\"}\n"
      "{\"context\": \"\", \"choices\": [\"b\", \"c\"], \"label\": 0}\n");
  const std::vector<std::string> expected = {
      ":2:1: error: the line: is not a JSON object",
      ":3:1: error: the line: has no context",
      ":4:1: error: the line: context is not text but number",
      ":5:1: error: the line: has no list of choices",
      ":6:1: error: the line: has 1 choice",
      ":7:1: error: the line: a choice is not text but number",
      ":8:1: error: the line: choice 1 is empty",
      ":9:1: error: the line: has no label",
      ":10:1: error: the line: the label is -1, not the number of a choice",
      ":11:1: error: the line: the label is \"B\", not the number of a choice",
      ":12:1: error: the line: the context is empty"};
  for (const std::string& line : expected)
    EXPECT_NE(said.find(line), std::string::npos) << line << "\nnot in\n" << said;
}

TEST_F(JsonLines, CountsWhatItDoesNotList) {
  std::string many;
  for (int i = 0; i < 25; ++i) many += "{}\n";
  EXPECT_NE(refused(many).find("and 5 more"), std::string::npos);
}

TEST_F(JsonLines, IsRefusedWhereThereIsNoFile) {
  EXPECT_NE(
      user_error([&] { read_questions(at("none"), requirements); }).find("--multiple-choice: '"),
      std::string::npos);
}

}  // namespace
}  // namespace trireme::batches
