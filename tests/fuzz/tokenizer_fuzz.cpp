// SPDX-License-Identifier: Apache-2.0
// Tokenizer files and texts. The first byte selects the format of the rest. After a NUL byte comes
// the second file, in formats with two, and the last part is the text to encode.
#include <vector>

#include "base/error.hpp"

#include "text/readers.hpp"

#include "fuzz.hpp"

namespace {

using namespace trireme;
using text::Vocabulary;

std::string_view take_part(std::string_view& rest) {
  const std::size_t end = rest.find('\0');
  const std::string_view part = rest.substr(0, end);
  rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  return part;
}

/// Adds missing tokens that a vocabulary needs, so that more inputs reach the encoder.
Vocabulary with_bytes(Vocabulary vocabulary) {
  for (int byte = 0; byte < 256; ++byte) {
    const std::string bytes(1, static_cast<char>(byte));
    bool there = false;
    for (const auto& entry : vocabulary.tokens)
      there |= (entry.ordinary() || entry.fallback) && entry.bytes == bytes;
    if (!there)
      vocabulary.tokens.push_back({bytes, false, false, vocabulary.characters});
  }
  if (vocabulary.rule == text::MergeRule::scored)
    vocabulary.ranks.resize(vocabulary.tokens.size());
  return vocabulary;
}

void use(const text::Tokenizer& tokenizer, std::string_view input, bool normalizes) {
  std::vector<text::Token> tokens;
  tokenizer.encode(input, tokens);
  std::string back;
  std::int64_t bytes = 0;
  for (const text::Token token : tokens) {
    fuzz::promise(token >= 0 && token < tokenizer.vocabulary(), "tokens are of the vocabulary");
    bytes += tokenizer.bytes_of(token);
  }
  tokenizer.decode(tokens, back);
  fuzz::promise((normalizes || back == input) && bytes == std::ssize(back),
                "a text comes back from its tokens");
  const auto again = text::tokenizer_from(tokenizer.serialized());
  fuzz::promise(again->hash() == tokenizer.hash(), "a tokenizer's text reads as the tokenizer");
}

Vocabulary read(std::uint8_t format, std::string_view& rest) {
  const std::string first(format % 7 == 3 || format % 7 == 6 ? std::exchange(rest, "")
                                                             : take_part(rest));
  const text::Companion companion{text::Pattern(format / 7 % 4), {{"<|endoftext|>", 300}}};
  switch (format % 7) {
    case 0:
      return text::read_tokenizer_json({"tokenizer.json", first});
    case 1:
      return text::read_vocab_and_merges({"vocab.json", first},
                                         {"merges.txt", std::string(take_part(rest))});
    case 2:
      return text::read_tiktoken({"x.tiktoken", first}, companion);
    case 3:
      return text::read_llmc_tokenizer({"x.bin", first}, text::Companion{companion.pattern, {}});
    case 4:
      return text::read_tiktoken({"x.tiktoken", std::string(take_part(rest))},
                                 text::read_companion({"x.tiktoken.json", first}));
    case 6:
      return text::read_sentencepiece({"x.model", first});
    default:
      return text::vocabulary_from(first);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  const auto format = input.take<std::uint8_t>();
  std::string_view rest = input.rest();
  try {
    Vocabulary vocabulary = read(format, rest);
    const bool normalizes = vocabulary.nfc || vocabulary.characters;
    use(*text::make_tokenizer(with_bytes(std::move(vocabulary)), "input"), rest, normalizes);
  } catch (const UserError& error) {
    fuzz::promise(!error.findings().empty(), "a refusal has a reason");
  }
  return 0;
}
