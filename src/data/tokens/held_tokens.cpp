// SPDX-License-Identifier: Apache-2.0
#include "tokens/held_tokens.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/hash.hpp"

#include "tokens/documents.hpp"
#include "tokens/sources.hpp"

namespace trireme::tokens {

HeldTokens::HeldTokens(std::vector<std::int32_t> tokens,
                       std::int64_t vocabulary,
                       std::string description)
    : TokenStream({std::ssize(tokens), vocabulary,
                   hash_bytes({reinterpret_cast<const char*>(tokens.data()),
                               tokens.size() * sizeof tokens[0]}),
                   std::move(description)}),
      tokens_(std::move(tokens)) {
  for (const std::int32_t token : tokens_)
    TRIREME_EXPECT(token >= 0 && token < vocabulary, "token {} in a vocabulary of {}", token,
                   vocabulary);
}

void HeldTokens::copy(std::int64_t begin, std::span<std::int32_t> out) const {
  std::copy_n(tokens_.begin() + begin, out.size(), out.begin());
}

std::vector<std::int32_t> encode_text(const std::vector<std::string>& entries,
                                      const TextFormat& format,
                                      const text::Tokenizer& tokenizer,
                                      const std::string& key) {
  std::vector<std::int32_t> tokens;
  for (const TextFile& file : find_text(entries, key).files) {
    Documents documents(file.path, format);
    encode_documents(documents, file.path, tokenizer, [&](const TextPiece&, const auto& more) {
      tokens.insert(tokens.end(), more.begin(), more.end());
    });
  }
  return tokens;
}

}  // namespace trireme::tokens
