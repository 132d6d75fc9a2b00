// SPDX-License-Identifier: Apache-2.0
// Small vocabularies for the tokenizer tests.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/vocabulary.hpp"

namespace trireme::text {

/// The bytes, these merges, and <|endoftext|>. A merge is two strings of bytes.
inline Vocabulary vocabulary_of(
    const std::vector<std::pair<std::string_view, std::string_view>>& merges) {
  Vocabulary vocabulary;
  for (int id = 0; id < 256; ++id)
    vocabulary.tokens.push_back({std::string(1, static_cast<char>(byte_of_gpt2_id(id))), false});
  const auto id_of = [&](std::string_view bytes) {
    Token id = 0;
    while (vocabulary.tokens[static_cast<std::size_t>(id)].bytes != bytes) ++id;
    return id;
  };
  for (const auto& [left, right] : merges) {
    vocabulary.merges.emplace_back(id_of(left), id_of(right));
    vocabulary.tokens.push_back({std::string(left) + std::string(right), false});
  }
  vocabulary.tokens.push_back({"<|endoftext|>", true});
  vocabulary.end_of_text = static_cast<Token>(vocabulary.tokens.size() - 1);
  return vocabulary;
}

inline std::vector<Token> encoded(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<Token> tokens;
  tokenizer.encode(text, tokens);
  return tokens;
}
inline std::string decoded(const Tokenizer& tokenizer, const std::vector<Token>& tokens) {
  std::string text;
  tokenizer.decode(tokens, text);
  return text;
}

}  // namespace trireme::text
