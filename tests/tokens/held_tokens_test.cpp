// SPDX-License-Identifier: Apache-2.0
#include "tokens/documents.hpp"
#include "tokens/scratch.hpp"
#include "tokens/sources.hpp"
#include "tokens/token_stream.hpp"

namespace trireme::tokens {
namespace {

using Tokens = std::vector<std::int32_t>;

class HeldTokensTest : public Scratch {};

TEST_F(HeldTokensTest, ShowsWhatItHolds) {
  const HeldTokens held({4, 5, 6, 7}, 8, "some");
  Tokens out(2);
  held.read(1, out);
  EXPECT_EQ(out, (Tokens{5, 6}));
  EXPECT_EQ(held.size(), 4);
  EXPECT_EQ(held.vocabulary(), 8);
  EXPECT_EQ(held.content_hash(), HeldTokens({4, 5, 6, 7}, 9, "others").content_hash());
  EXPECT_NE(held.content_hash(), HeldTokens({4, 5, 7, 6}, 8, "some").content_hash());
  EXPECT_THROW(held.read(3, out), ContractError);
  EXPECT_THROW(HeldTokens({8}, 8, ""), ContractError);
}

/// A tokenizer of bytes with a token that begins a document.
class Marked final : public text::Tokenizer {
 public:
  [[nodiscard]] std::int64_t vocabulary() const override { return 257; }
  [[nodiscard]] std::optional<text::Token> end_of_text() const override { return 256; }
  [[nodiscard]] std::string kind() const override { return "marked"; }
  [[nodiscard]] std::uint64_t hash() const override { return 7; }
  [[nodiscard]] std::string serialized() const override { return "marked"; }
  void encode(std::string_view text, std::vector<text::Token>& out) const override {
    for (const char c : text) out.push_back(static_cast<unsigned char>(c));
  }
  void decode(std::span<const text::Token> tokens, std::string& out) const override {
    for (const text::Token token : tokens) out += static_cast<char>(token);
  }
  [[nodiscard]] std::int32_t bytes_of(text::Token token) const override { return token < 256; }
};

TEST_F(HeldTokensTest, TextBecomesTheTokensOfItsFilesInOrder) {
  write("d/b", "b");
  write("d/a", "aa");
  write("d/c", std::string("\0x", 2));  // binary
  write("lines", "{\"text\": \"x\"}\n{\"text\": \"yy\"}\n");
  const Marked marked;
  EXPECT_EQ(encode_text(find_text({at("d")}).files, {}, marked), (Tokens{256, 'a', 'a', 256, 'b'}));
  EXPECT_EQ(encode_text(find_text({at("d/b"), at("d")}).files, {}, *text::byte_tokenizer()),
            (Tokens{'b', 'a', 'a'}));
  EXPECT_EQ(encode_text(find_text({at("d/c")}).files, {}, marked), (Tokens{256, 0, 'x'}));
  EXPECT_EQ(encode_text(find_text({at("lines")}).files, TextFormat("text"), marked),
            (Tokens{256, 'x', 256, 'y', 'y'}));
}

}  // namespace
}  // namespace trireme::tokens
