// SPDX-License-Identifier: Apache-2.0
#include "base/error.hpp"
#include "base/hash.hpp"

#include "text/vocabulary.hpp"

namespace trireme::text {
namespace {

class ByteTokenizer final : public Tokenizer {
 public:
  std::int64_t vocabulary() const override { return 256; }
  std::optional<Token> end_of_text() const override { return std::nullopt; }
  std::string kind() const override { return "bytes"; }
  std::uint64_t hash() const override { return hash_bytes(serialized_bytes); }
  std::string serialized() const override { return std::string(serialized_bytes); }

  void encode(std::string_view text, std::vector<Token>& out) const override {
    out.reserve(out.size() + text.size());
    for (const char c : text) out.push_back(static_cast<unsigned char>(c));
  }
  void decode(std::span<const Token> tokens, std::string& out) const override {
    out.reserve(out.size() + tokens.size());
    for (const Token token : tokens) {
      TRIREME_EXPECT(token >= 0 && token < 256, "token {} of 256", token);
      out.push_back(static_cast<char>(token));
    }
  }
  std::int32_t bytes_of(Token token) const override {
    TRIREME_EXPECT(token >= 0 && token < 256, "token {} of 256", token);
    return 1;
  }
};

}  // namespace

std::shared_ptr<const Tokenizer> byte_tokenizer() {
  static const auto only = std::make_shared<const ByteTokenizer>();
  return only;
}

}  // namespace trireme::text
