// SPDX-License-Identifier: Apache-2.0
#include "tokens/held_tokens.hpp"

#include <algorithm>
#include <utility>

#include "base/hash.hpp"

#include "tokens/documents.hpp"
#include "tokens/sources.hpp"
#include "tokens/stored_hash.hpp"

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

SyntheticTokens::SyntheticTokens(std::int64_t size, std::int64_t vocabulary, std::uint64_t seed)
    : TokenStream({size, vocabulary,
                   StoredHash()
                       .add("synthetic")
                       .add(seed)
                       .add(static_cast<std::uint64_t>(vocabulary))
                       .add(static_cast<std::uint64_t>(size))
                       .value(),
                   fmt::format("{} synthetic tokens", size)}),
      key_(RandomKey::of(seed, Draw::synthetic)) {
  TRIREME_EXPECT(size >= 1 && vocabulary >= 1, "{} synthetic tokens of a vocabulary of {}", size,
                 vocabulary);
}

void SyntheticTokens::copy(std::int64_t begin, std::span<std::int32_t> out) const {
  std::int64_t index = begin;
  std::uint64_t phrase = 0;
  for (auto& token : out) {
    const auto place = static_cast<std::uint64_t>(index % phrase_tokens);
    if (place == 0 || index == begin)  // counter_high 0: which phrase; 1: the book
      phrase = philox(key_, static_cast<std::uint64_t>(index / phrase_tokens)).w[0] % phrases;
    const Words4 random = philox(key_, phrase * phrase_tokens + place, 1);
    token = static_cast<std::int32_t>(
        below(static_cast<std::uint64_t>(vocabulary()), random.w[0], random.w[1]));
    ++index;
  }
}

}  // namespace trireme::tokens
