// SPDX-License-Identifier: Apache-2.0
// Megatron's .bin and .idx, written here byte by byte.
#include <vector>

#include <gmock/gmock.h>

#include "tokens/check.hpp"
#include "tokens/megatron_files.hpp"
#include "tokens/scratch.hpp"
#include "tokens/token_files.hpp"

namespace trireme::tokens {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class Megatron : public Scratch {
 protected:
  std::string problem(const std::string& index, const std::string& tokens) {
    const std::string path = write("m.bin", tokens);
    write("m.idx", index);
    return user_error([&] { check({path}, {.vocabulary = 100}); });
  }
};

TEST_F(Megatron, TokensAndDocuments) {
  const std::string path = write("m.bin", tokens_of<std::uint16_t>());
  write("m.idx", index_of(8, 2));
  const auto found = check({path}, {.vocabulary = 10, .row_context = 2});
  EXPECT_THAT(found.rows, ElementsAre(0, 2, 5));
  const auto stream = open_token_files(found, 10);
  std::vector<std::int32_t> all(9);
  stream->read(0, all);
  EXPECT_THAT(all, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9));

  const std::string wide = write("w.bin", tokens_of<std::int32_t>());
  write("w.idx", index_of(4, 4));
  EXPECT_EQ(open_token_files(check({wide}, {.vocabulary = 10}), 10)->size(), 9);
}

// For document masks, if the files have documents but no token at their beginning.
TEST_F(Megatron, DocumentsAreMarkedWhereTheyAreNot) {
  const std::string path = write("m.bin", tokens_of<std::uint16_t>());
  write("m.idx", index_of(8, 2));
  TokenRequirements requirements{
      .vocabulary = 10, .row_context = 2, .marks_documents = true, .end_of_text = 0};
  const auto found = check({path}, requirements);
  EXPECT_THAT(found.marks, ElementsAre(0, 5));
  EXPECT_EQ(found.documents, 2);
  EXPECT_THAT(found.rows, ElementsAre(0, 2, 4, 6, 8));
  const auto stream = open_token_files(found, 10, 0);
  const std::vector<std::int32_t> whole = {0, 1, 2, 3, 4, 5, 0, 6, 7, 8, 9};
  ASSERT_EQ(stream->size(), std::ssize(whole));
  for (std::int64_t begin = 0; begin <= stream->size(); ++begin)
    for (std::int64_t end = begin; end <= stream->size(); ++end) {
      std::vector<std::int32_t> tokens(static_cast<std::size_t>(end - begin));
      stream->read(begin, tokens);
      EXPECT_EQ(tokens, std::vector(whole.begin() + begin, whole.begin() + end));
    }
  const auto plain = check({path}, {.vocabulary = 10, .end_of_text = 0});
  EXPECT_NE(open_token_files(plain, 10)->content_hash(), stream->content_hash());
  requirements.end_of_text = 6;  // it begins a document already
  EXPECT_TRUE(check({path}, requirements).marks.empty());
}

TEST_F(Megatron, WhatDoesNotFitIsRefused) {
  const std::string index = index_of(8, 2), tokens = tokens_of<std::uint16_t>();
  EXPECT_THAT(problem(index, tokens.substr(2)), HasSubstr("says 9 tokens of 2 bytes"));
  EXPECT_THAT(problem(index, tokens + "x"), HasSubstr("one of the two is truncated"));
  EXPECT_THAT(problem(index.substr(0, 20), tokens), HasSubstr("is not an index of Megatron"));
  EXPECT_THAT(problem(index.substr(0, index.size() - 1), tokens), HasSubstr("is truncated"));
  EXPECT_THAT(problem(index_of(6, 8), tokens), HasSubstr("tokens of type 6"));
  std::string other = index;
  other[9] = 2;
  EXPECT_THAT(problem(other, tokens), HasSubstr("version 2"));
  other = index;
  std::memset(other.data() + 18, 0x7f, 8);
  EXPECT_THAT(problem(other, tokens), HasSubstr("sequences"));
  other = index;
  other[34 + 12 + 8] = 5;  // the offset of the second sequence
  EXPECT_THAT(problem(other, tokens), HasSubstr("only files without holes are read"));
  other = index;
  other[34 + 3] = static_cast<char>(0x80);  // the first length is negative
  EXPECT_THAT(problem(other, tokens), HasSubstr("sequence 0 has -"));
}

}  // namespace
}  // namespace trireme::tokens
