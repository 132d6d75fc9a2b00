// SPDX-License-Identifier: Apache-2.0
#include "text/vocabulary.hpp"

#include <algorithm>
#include <array>
#include <charconv>

#include <fmt/format.h>

namespace trireme::text {
namespace {

constexpr bool stands_for_itself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

/// Code points of the alphabet by byte, and the bytes in the order of GPT-2's ids.
struct Alphabet {
  Alphabet() {
    std::size_t printable = 0, other = 0;
    for (int b = 0; b < 256; ++b) printable += stands_for_itself(b) ? 1 : 0;
    std::size_t next = 0;
    for (int b = 0; b < 256; ++b) {
      const bool itself = stands_for_itself(b);
      code[static_cast<std::size_t>(b)] =
          itself ? static_cast<std::uint32_t>(b) : static_cast<std::uint32_t>(256 + other);
      order[itself ? next++ : printable + other++] = static_cast<unsigned char>(b);
    }
    bytes.fill(-1);
    for (std::size_t b = 0; b < 256; ++b) bytes[code[b]] = static_cast<int>(b);
  }
  std::array<std::uint32_t, 256> code;
  std::array<unsigned char, 256> order;
  std::array<int, 324> bytes;
};
const Alphabet& alphabet() {
  static const Alphabet only;
  return only;
}

}  // namespace

unsigned char byte_of_gpt2_id(int id) {
  return alphabet().order[static_cast<std::size_t>(id)];
}

std::string to_alphabet(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) put_utf8(alphabet().code[static_cast<unsigned char>(c)], text);
  return text;
}

std::optional<std::string> from_alphabet(std::string_view text) {
  std::string bytes;
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::uint32_t code = static_cast<unsigned char>(text[i]);
    if (code >= 0x80) {  // all of the alphabet is below U+0800: two bytes
      if ((code & 0xE0U) != 0xC0U || i + 1 == text.size() ||
          (static_cast<unsigned char>(text[i + 1]) & 0xC0U) != 0x80U)
        return std::nullopt;
      code = (code & 0x1FU) << 6U | (static_cast<unsigned char>(text[++i]) & 0x3FU);
    }
    if (code >= alphabet().bytes.size() || alphabet().bytes[code] < 0)
      return std::nullopt;
    bytes.push_back(static_cast<char>(alphabet().bytes[code]));
  }
  return bytes;
}

std::string with_spaces(std::string_view text) {
  std::string result;
  for (std::size_t at = text.find(written_space); at != std::string_view::npos;
       at = text.find(written_space)) {
    result.append(text.substr(0, at)).push_back(' ');
    text.remove_prefix(at + written_space.size());
  }
  return result.append(text);
}

std::optional<char> byte_named(std::string_view name) {
  unsigned value = 0;
  if (name.size() != 6 || !name.starts_with("<0x") || name[5] != '>' ||
      std::from_chars(&name[3], &name[5], value, 16).ptr != &name[5])
    return std::nullopt;
  return static_cast<char>(value);
}

std::string spelling_of(const Vocabulary& vocabulary, Token id) {
  const VocabularyEntry& entry = vocabulary[id];
  if (entry.fallback)
    return fmt::format("<0x{:02X}>", static_cast<unsigned char>(entry.bytes.front()));
  if (!entry.ordinary())
    return entry.bytes;
  if (!vocabulary.characters)
    return to_alphabet(entry.bytes);
  std::string spelling;
  for (const char c : entry.bytes)
    if (c == ' ')
      spelling += written_space;
    else
      spelling.push_back(c);
  return spelling;
}

TokenOfBytes ordinary_tokens(const Vocabulary& vocabulary) {
  TokenOfBytes ids;
  for (Token id = 0; id < std::ssize(vocabulary.tokens); ++id)
    if (vocabulary[id].ordinary())
      ids.emplace(vocabulary[id].bytes, id);
  return ids;
}

std::vector<MadeToken> made_tokens(const Vocabulary& vocabulary, const TokenOfBytes& ids) {
  std::vector<MadeToken> made;
  for (std::size_t id = 0; id < vocabulary.tokens.size() && made.size() <= most_pairs; ++id) {
    const VocabularyEntry& entry = vocabulary.tokens[id];
    const std::string_view bytes = entry.bytes;
    for (std::size_t cut = 1; entry.ordinary() && cut < bytes.size(); ++cut)
      if (const auto left = ids.find(bytes.substr(0, cut)); left != ids.end())
        if (const auto right = ids.find(bytes.substr(cut)); right != ids.end())
          made.push_back({left->second, right->second, static_cast<Token>(id)});
  }
  return made;
}

std::string put_token(Vocabulary& vocabulary, std::int64_t id, VocabularyEntry entry) {
  auto& tokens = vocabulary.tokens;
  if (id < 0)
    return fmt::format("id {} is below 0", id);
  if (id >= std::int64_t{1} << 24U || id > std::ssize(tokens) + most_unused_ids)
    return fmt::format("id {} is far above those of the other tokens", id);
  if (entry.bytes.empty())
    return "a token without bytes";
  if (entry.bytes.size() > most_token_bytes)
    return fmt::format("a token of {} bytes; at most {} are read", entry.bytes.size(),
                       most_token_bytes);
  const auto at = static_cast<std::size_t>(id);
  if (at >= tokens.size())
    tokens.resize(at + 1);
  if (!tokens[at].bytes.empty())
    return fmt::format("id {} is given twice", id);
  tokens[at] = std::move(entry);
  return "";
}

std::optional<Token> special_named(const Vocabulary& vocabulary, std::string_view name) {
  const auto found = std::ranges::find_if(vocabulary.tokens, [&](const VocabularyEntry& entry) {
    return entry.special && (name.empty() || entry.bytes == name);
  });
  return found == vocabulary.tokens.end()
             ? std::nullopt
             : std::optional(static_cast<Token>(found - vocabulary.tokens.begin()));
}

std::optional<Token> find_end_of_text(const Vocabulary& vocabulary) {
  for (const std::string_view name : {"<|endoftext|>", "<|bos|>", "<|begin_of_text|>",
                                      "<\xef\xbd\x9c"
                                      "begin\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>",
                                      "<|end_of_text|>", "<s>", "</s>"})
    if (const auto token = special_named(vocabulary, name))
      return token;
  const bool one = std::ranges::count_if(vocabulary.tokens, &VocabularyEntry::special) == 1;
  return one ? special_named(vocabulary, "") : std::nullopt;
}

std::vector<Token> find_ends_of_text(const Vocabulary& vocabulary) {
  if (!vocabulary.ends_of_text.empty())
    return vocabulary.ends_of_text;
  std::vector<Token> ends;
  for (const std::string_view name : {"<|endoftext|>", "<|end_of_text|>",
                                      "<\xef\xbd\x9c"
                                      "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>",
                                      "</s>", "<|eot_id|>", "<|eom_id|>", "<|im_end|>"})
    if (const auto token = special_named(vocabulary, name))
      ends.push_back(*token);
  if (vocabulary.end_of_text && std::ranges::find(ends, *vocabulary.end_of_text) == ends.end())
    ends.push_back(*vocabulary.end_of_text);
  return ends;
}

}  // namespace trireme::text
