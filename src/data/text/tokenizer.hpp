// SPDX-License-Identifier: Apache-2.0
// Text to tokens and back. A tokenizer is immutable after construction; all of its functions are
// const and safe from several threads at once.
//
// 1. encode() and decode() are exact for every byte sequence: decode(encode(text)) == text, whether
//    or not the text is UTF-8. A tokenizer that normalizes gives the normalized text: form NFC, or,
//    of SentencePiece, a space for every U+2581 and often one more before the text. Special tokens
//    that are spelled out in a text are ordinary text, except for encode_commands().
// 2. Ids are 0 ... vocabulary() - 1. An id that stands for nothing decodes to no bytes, as special
//    tokens do.
// 3. serialized() is text that holds everything that decides the results; tokenizer_from() makes an
//    equal tokenizer of it, so a checkpoint needs no other file. hash() is the hash of that text
//    without begin_of_text() and ends_of_text(): equal hashes, equal tokens of documents.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trireme::text {

using Token = std::int32_t;

class Tokenizer {
 public:
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;
  virtual ~Tokenizer() = default;

  /// Number of ids, special tokens included.
  [[nodiscard]] virtual std::int64_t vocabulary() const = 0;
  /// What begins a document in a stream of tokens.
  [[nodiscard]] virtual std::optional<Token> end_of_text() const = 0;
  /// What begins a prompt, or a context that is judged, when the tokenizer says that something does.
  [[nodiscard]] virtual std::optional<Token> begin_of_text() const { return std::nullopt; }
  /// What a text ends with, the usual one first: tokens for the end of a document or of a turn, and
  /// at last end_of_text(), because where the next document begins this one has ended.
  [[nodiscard]] virtual std::vector<Token> ends_of_text() const {
    return end_of_text() ? std::vector{*end_of_text()} : std::vector<Token>();
  }
  /// Special tokens by their spelling. encode() never produces them.
  [[nodiscard]] virtual std::vector<std::pair<std::string, Token>> special_tokens() const {
    return {};
  }
  /// Spellings inside of which a cut of next_cut() (pieces.hpp) changes tokens: added tokens, and
  /// those of SentencePiece.
  [[nodiscard]] virtual std::vector<std::string> uncut() const { return {}; }
  /// As the second line of serialized() has it: "bytes", "bpe".
  [[nodiscard]] virtual std::string kind() const = 0;
  [[nodiscard]] virtual std::uint64_t hash() const = 0;
  [[nodiscard]] virtual std::string serialized() const = 0;

  /// Appends the tokens of `text`, a whole document: a cut would change the tokens around it.
  virtual void encode(std::string_view text, std::vector<Token>& out) const = 0;
  /// The same for a part of a text that next_cut() cuts off.
  virtual void encode_rest(std::string_view text, std::vector<Token>& out) const {
    encode(text, out);
  }
  /// The same with special tokens where they are spelled out. For text that may give commands.
  virtual void encode_commands(std::string_view text, std::vector<Token>& out) const {
    encode(text, out);
  }
  /// Appends the bytes of the tokens. Requires: every token in 0 ... vocabulary() - 1.
  virtual void decode(std::span<const Token> tokens, std::string& out) const = 0;
  /// Bytes that a token decodes to; 0 for special tokens. For bits per byte.
  [[nodiscard]] virtual std::int32_t bytes_of(Token token) const = 0;

 protected:
  Tokenizer() = default;
};

/// 256 ids, which are the bytes; no end_of_text().
std::shared_ptr<const Tokenizer> byte_tokenizer();

/// A file tokenizer.json, vocab.json (with merges.txt next to it), *.tiktoken, SentencePiece's
/// *.model or llm.c's tokenizer *.bin; or a directory with one of them. What tokenizer_config.json
/// next to it says of the beginning and the end of a text counts. Throws UserError naming file and
/// line, offset or key; StorageError for a file that cannot be read.
std::shared_ptr<const Tokenizer> load_tokenizer(const std::filesystem::path& file_or_directory);

/// Throws UserError for what serialized() did not write.
std::shared_ptr<const Tokenizer> tokenizer_from(std::string_view serialized);

}  // namespace trireme::text
