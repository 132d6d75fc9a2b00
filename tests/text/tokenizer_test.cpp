// SPDX-License-Identifier: Apache-2.0
#include "text/tokenizer.hpp"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.hpp"

namespace trireme::text {
namespace {

TEST(ByteTokenizer, TokensAreTheBytes) {
  const auto bytes = byte_tokenizer();
  std::string all;
  for (int b = 0; b < 256; ++b) all.push_back(static_cast<char>(b));
  std::vector<Token> tokens{7};
  bytes->encode(all, tokens);
  ASSERT_EQ(tokens.size(), 257u);
  for (int b = 0; b < 256; ++b) EXPECT_EQ(tokens[static_cast<std::size_t>(b) + 1], b);
  std::string back;
  bytes->decode(std::span(tokens).subspan(1), back);
  EXPECT_EQ(back, all);
  EXPECT_EQ(bytes->vocabulary(), 256);
  EXPECT_FALSE(bytes->end_of_text());
  EXPECT_EQ(bytes->bytes_of(255), 1);
}

TEST(ByteTokenizer, RefusesOtherTokens) {
  std::string out;
  EXPECT_THROW(byte_tokenizer()->decode(std::vector<Token>{256}, out), ContractError);
  EXPECT_THROW(byte_tokenizer()->decode(std::vector<Token>{-1}, out), ContractError);
}

TEST(ByteTokenizer, IsReadBack) {
  const auto bytes = byte_tokenizer();
  const auto again = tokenizer_from(bytes->serialized());
  EXPECT_EQ(again->kind(), "bytes");
  EXPECT_EQ(again->hash(), bytes->hash());
  EXPECT_THROW(tokenizer_from(""), UserError);
  EXPECT_THROW(tokenizer_from(bytes->serialized() + "x"), UserError);
}

}  // namespace
}  // namespace trireme::text
