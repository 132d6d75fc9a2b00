// SPDX-License-Identifier: Apache-2.0
// A byte-pair tokenizer as plain data: the result of the readers of all file formats, and of
// training.
//
// A piece of text begins as the tokens of its bytes. As long as two neighbouring tokens may be
// merged, the pair with the lowest rank is merged (of equal ranks the leftmost). These pairs may be
// merged:
//
//   listed   the pairs of `merges`; the rank is the place in that list. Together they are the token
//            with the bytes of both. GPT-2's merges.txt and tokenizer.json.
//   ranked   any two tokens whose bytes together are a token; the rank is its id. tiktoken.
//
// What `added` tokens are spelled like is found before the text is cut into pieces: the first, and of
// those at one place the longest.
//
// With `whole_pieces` a piece that is a token is that token, whatever the merges would make of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/pieces.hpp"
#include "text/tokenizer.hpp"

namespace trireme::text {

enum class MergeRule : std::uint8_t { listed, ranked };

struct VocabularyEntry {
  std::string bytes;  ///< of a special token: its name; empty: the id is not in use
  bool special = false;
  bool added = false;  ///< the bytes are this token wherever they are in a text

  /// Whether merges make it.
  [[nodiscard]] bool ordinary() const { return !special && !added && !bytes.empty(); }
  bool operator==(const VocabularyEntry&) const = default;
};

using MergePair = std::pair<Token, Token>;

struct Vocabulary {
  Pattern pattern = Pattern::gpt2;
  MergeRule rule = MergeRule::listed;
  bool whole_pieces = false;
  bool nfc = false;  ///< a text is brought into normalization form C first (nfc.hpp)
  std::vector<VocabularyEntry> tokens;  ///< by id
  std::vector<MergePair> merges;        ///< for `listed`
  std::optional<Token> end_of_text;
  bool operator==(const Vocabulary&) const = default;
};

/// Bounds of what is read, against files that are not vocabularies.
inline constexpr std::int64_t most_file_bytes = std::int64_t{64} << 20U;
inline constexpr std::size_t most_token_bytes = 4096;
inline constexpr std::size_t most_pairs = std::size_t{1} << 23U;
/// Ids without a token, together.
inline constexpr std::int64_t most_unused_ids = 65536;

/// The token of each byte, in GPT-2's order: the printable characters of Latin-1 first, then the
/// others (Source: openai/gpt-2 src/encoder.py, bytes_to_unicode).
unsigned char byte_of_gpt2_id(int id);

/// The spelling of bytes in vocab.json, merges.txt and tokenizer.json: each byte a printable
/// character of its own.
std::string to_alphabet(std::string_view bytes);
/// Nothing when a character of `text` is not of that alphabet.
std::optional<std::string> from_alphabet(std::string_view text);

/// Puts a token at its id. Returns what is wrong, or "".
std::string put_token(Vocabulary& vocabulary, std::int64_t id, VocabularyEntry entry);

/// The special token that begins documents, by name; the only one where there is just one.
std::optional<Token> find_end_of_text(const Vocabulary& vocabulary);

/// As Tokenizer::ends_of_text() has it, by name.
std::vector<Token> find_ends_of_text(const Vocabulary& vocabulary);

/// A tokenizer for it. `source` is what mistakes are about. Throws UserError: bytes without a
/// token, two tokens of the same bytes, a merge whose result is not a token, a pair that is merged
/// twice.
std::shared_ptr<const Tokenizer> make_tokenizer(Vocabulary vocabulary, const std::string& source);

/// The text form; vocabulary_from() throws UserError for anything else.
std::string to_text(const Vocabulary& vocabulary);
Vocabulary vocabulary_from(std::string_view text);

}  // namespace trireme::text
