// SPDX-License-Identifier: Apache-2.0
// Models of SentencePiece, in their own file and as tokenizer.json. oracles.py compares them with the
// packages sentencepiece and tokenizers.
#include <bit>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/readers.hpp"
#include "text/vocabularies.hpp"
#include "text/write.hpp"
#include "tokens/scratch.hpp"

namespace trireme::text {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

std::string varint(std::uint64_t number) {
  std::string bytes;
  for (; number >= 0x80; number >>= 7U) bytes.push_back(static_cast<char>(number | 0x80U));
  return bytes + static_cast<char>(number);
}
std::string number_field(int field, std::uint64_t number) {
  return varint(static_cast<std::uint64_t>(field) << 3U) + varint(number);
}
std::string bytes_field(int field, std::string_view bytes) {
  return varint(static_cast<std::uint64_t>(field) << 3U | 2U) + varint(bytes.size()) +
         std::string(bytes);
}
std::string piece(std::string_view name, float score, std::uint64_t type) {
  const auto bits = std::bit_cast<std::uint32_t>(score);
  std::string four;
  for (const unsigned shift : {0U, 8U, 16U, 24U}) four.push_back(static_cast<char>(bits >> shift));
  return bytes_field(
      1, bytes_field(1, name) + "\x15" + four + (type == 1 ? "" : number_field(3, type)));
}

constexpr const char* space = "\u2581";

/// <unk>, <s>, </s>, the bytes from 3 on, <think>, and pieces from 260 on; 268 is "a<space>", which
/// SentencePiece makes only without split_by_whitespace.
std::string model(const std::string& trainer = number_field(3, 2) + number_field(35, 1),
                  const std::string& normalizer = number_field(4, 0),
                  const std::string& more = "") {
  std::string bytes = piece("<unk>", 0, 2) + piece("<s>", 0, 3) + piece("</s>", 0, 3);
  for (int b = 0; b < 256; ++b) bytes += piece(fmt::format("<0x{:02X}>", b), 0, 6);
  bytes += piece("<think>", 0, 4);
  const std::string s = space;
  const std::pair<std::string, float> pieces[] = {{"ab", -2},  {s + "a", -1}, {s, -5},
                                                  {"a", -6},   {"b", -7},     {"\u00e9", -8},
                                                  {s + s, -9}, {"ba", -3},    {"a" + s, -10}};
  for (const auto& [name, score] : pieces) bytes += piece(name, score, 1);
  return bytes + more + bytes_field(2, trainer) + bytes_field(3, normalizer);
}

class SentencePiece : public tokens::Scratch {
 protected:
  std::shared_ptr<const Tokenizer> loaded(const std::string& bytes = model()) {
    write("tokenizer.model", bytes);
    return load_tokenizer(directory_);
  }
  std::string said(const std::string& bytes) {
    return user_error([&] { loaded(bytes); });
  }
};

TEST_F(SentencePiece, MergesByScoreAfterASpaceBeforeTheText) {
  const auto tokenizer = loaded();
  EXPECT_THAT(encoded(*tokenizer, "ab"), ElementsAre(261, 264));  // " a" has the higher score
  EXPECT_THAT(encoded(*tokenizer, "bab"), ElementsAre(262, 264, 260));
  EXPECT_THAT(encoded(*tokenizer, ""), ElementsAre());
  EXPECT_THAT(encoded(*tokenizer, " "), ElementsAre(266));
  EXPECT_EQ(decoded(*tokenizer, encoded(*tokenizer, "ab ab")), " ab ab");
}

TEST_F(SentencePiece, FallsBackToTheBytesOfUnknownCharacters) {
  const auto tokenizer = loaded();
  EXPECT_THAT(encoded(*tokenizer, "\u00e9\u00ea"), ElementsAre(262, 265, 3 + 0xC3, 3 + 0xAA));
  EXPECT_THAT(encoded(*tokenizer, "\n\xff"), ElementsAre(262, 3 + 10, 3 + 0xFF));
  EXPECT_EQ(decoded(*tokenizer, encoded(*tokenizer, "\n\xff\xe9\u00ea<0x41>")),
            " \n\xff\xe9\u00ea<0x41>");
  EXPECT_EQ(tokenizer->bytes_of(3 + 0xFF), 1);
}

TEST_F(SentencePiece, PassesOverFieldsThatAreNoneOfAModel) {
  // Field 101 of message 0 would be the name of the last piece before the first.
  const FileText odd{"x.model", bytes_field(0, bytes_field(101, "x")) + model()};
  EXPECT_EQ(read_sentencepiece(odd), read_sentencepiece({"x.model", model()}));
}

TEST_F(SentencePiece, WritesSpacesForU2581) {
  EXPECT_EQ(decoded(*loaded(), encoded(*loaded(), "a\u2581b")), " a b");
}

TEST_F(SentencePiece, FindsUserDefinedSymbolsAndLeavesControlSymbolsOrdinaryText) {
  const auto tokenizer = loaded();
  EXPECT_THAT(encoded(*tokenizer, "<think>ab"), ElementsAre(262, 259, 260));
  EXPECT_THAT(encoded(*tokenizer, "</s>"), testing::Not(Contains(2)));
}

TEST_F(SentencePiece, TakesControlSymbolsAsCommandsWhereTheyAreWanted) {
  std::vector<Token> tokens;
  loaded()->encode_commands("<s>ab</s>ab", tokens);
  EXPECT_THAT(tokens, ElementsAre(262, 1, 260, 2, 260));
}

TEST_F(SentencePiece, KnowsWhatBeginsAndEndsAText) {
  const auto tokenizer = loaded();
  EXPECT_EQ(tokenizer->begin_of_text(), 1);
  EXPECT_EQ(tokenizer->end_of_text(), 1);
  EXPECT_THAT(tokenizer->ends_of_text(), ElementsAre(2));
  write("tokenizer_config.json", R"({"add_bos_token": false})");
  EXPECT_FALSE(loaded()->begin_of_text());
  EXPECT_EQ(loaded()->hash(), tokenizer->hash());
}

TEST_F(SentencePiece, CutsDocumentsWhereNoTokenIsCut) {
  const auto tokenizer = loaded();
  EXPECT_THAT(tokenizer->uncut(), ElementsAre("<think>", "a "));
  const std::string text = "ab bab  ba";
  std::vector<Token> parts = encoded(*tokenizer, text.substr(0, 2));
  tokenizer->encode_rest(text.substr(2), parts);
  EXPECT_EQ(parts, encoded(*tokenizer, text));
}

TEST_F(SentencePiece, IsReadBackAndBecomesATokenizerJson) {
  const auto tokenizer = loaded();
  const auto again = tokenizer_from(tokenizer->serialized());
  EXPECT_EQ(again->serialized(), tokenizer->serialized());
  write("json/tokenizer.json", tokenizer_json(listed_vocabulary(tokenizer->serialized())));
  const auto json = load_tokenizer(at("json"));
  for (const char* text : {"abab  ba\u00e9", "\xf0\x9f\x98\x80\n", " a", "aba"})
    EXPECT_EQ(encoded(*json, text), encoded(*tokenizer, text)) << text;
  // Hugging Face adds the prefix before every part.
  EXPECT_THAT(encoded(*json, "<think>ab"), ElementsAre(259, 261, 264));
  EXPECT_EQ(json->begin_of_text(), 1);
}

TEST_F(SentencePiece, RefusesOtherModels) {
  const std::string fallback = number_field(35, 1), bpe = number_field(3, 2);
  EXPECT_THAT(said(model(fallback)), HasSubstr("its model_type is unigram"));
  EXPECT_THAT(said(model(bpe)), HasSubstr("byte_fallback is false"));
  EXPECT_THAT(said(model(bpe + fallback, "")), HasSubstr("remove_extra_whitespaces is true"));
  EXPECT_THAT(said(model(bpe + fallback, bytes_field(2, "x") + number_field(4, 0))),
              HasSubstr("its normalizer maps characters"));
  EXPECT_THAT(said(model(bpe + fallback, number_field(4, 0), piece("c", 0, 5))),
              HasSubstr("piece 269, 'c': its type or score"));
  EXPECT_THAT(said(model().substr(0, 999)), HasSubstr("or the file was truncated"));
}

}  // namespace
}  // namespace trireme::text
