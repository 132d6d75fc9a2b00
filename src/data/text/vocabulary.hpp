// SPDX-License-Identifier: Apache-2.0
// A byte-pair tokenizer as plain data: what the readers of all file formats and training produce.
//
// A piece of text begins as the tokens of its bytes. As long as two neighbouring tokens may be
// merged, the pair with the lowest rank is merged (of equal ranks the leftmost). These pairs may be
// merged:
//
//   listed   the pairs of `merges`; the rank is the place in that list. Together they are the token
//            with the bytes of both. GPT-2's merges.txt and tokenizer.json.
//   ranked   any two tokens whose bytes together are a token; the rank is its id. tiktoken.
//   scored   as `ranked`, with the rank that `ranks` has for its id. SentencePiece.
//
// With `characters` (SentencePiece with byte fallback) the text is not cut into pieces. It begins as
// the tokens of its characters; a character without a token is the `fallback` tokens of its bytes.
// U+2581, by which these vocabularies write a space, is a space in a text as well.
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
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/pieces.hpp"
#include "text/tokenizer.hpp"

namespace trireme::text {

enum class MergeRule : std::uint8_t { listed, ranked, scored };

/// Where a text with `characters` gets an additional space. A part is text between added tokens.
enum class SpacePrefix : std::uint8_t {
  none,
  text,        ///< before the text: SentencePiece's add_dummy_prefix
  parts,       ///< before every part: the normalizer Prepend of Hugging Face
  first_word,  ///< before a first part that begins with a word: Metaspace with "first"
  words        ///< before every part that begins with a word: Metaspace with "always"
};

struct VocabularyEntry {
  std::string bytes;  ///< of a special token: its name; empty: the id is not in use
  bool special = false;
  bool added = false;     ///< the bytes are this token wherever they are in a text
  bool fallback = false;  ///< of a byte of a character without a token

  /// Whether a text has it without being spelled as an added token or falling back.
  [[nodiscard]] bool ordinary() const { return !special && !added && !fallback && !bytes.empty(); }
  bool operator==(const VocabularyEntry&) const = default;
};

using MergePair = std::pair<Token, Token>;

struct Vocabulary {
  bool characters = false;
  SpacePrefix prefix = SpacePrefix::none;  ///< with `characters`
  Pattern pattern = Pattern::gpt2;         ///< without
  MergeRule rule = MergeRule::listed;
  bool whole_pieces = false;
  bool nfc = false;  ///< a text is brought into normalization form C first (characters.hpp)
  std::vector<VocabularyEntry> tokens;  ///< by id
  std::vector<MergePair> merges;        ///< for `listed`
  std::vector<std::uint32_t> ranks;     ///< for `scored`, by id
  std::optional<Token> end_of_text;     ///< what begins a document in a stream
  std::optional<Token> begin_of_text;   ///< what begins a text that is given to a model
  std::vector<Token> ends_of_text;      ///< what ends one; empty: find_ends_of_text() goes by name

  [[nodiscard]] const VocabularyEntry& operator[](Token id) const {
    return tokens[static_cast<std::size_t>(id)];
  }
  /// Whether there is such a token, and it is special.
  [[nodiscard]] bool has_special(std::int64_t id) const {
    return id >= 0 && id < std::ssize(tokens) && (*this)[static_cast<Token>(id)].special;
  }
  bool operator==(const Vocabulary&) const = default;
};

/// Bounds of what is read, against files that are not vocabularies.
inline constexpr std::size_t most_token_bytes = 4096;
inline constexpr std::size_t most_pairs = std::size_t{1} << 23U;
/// Ids without a token between two that have one.
inline constexpr std::int64_t most_unused_ids = 65536;

/// The token of each byte, in GPT-2's order: the printable characters of Latin-1 first, then the
/// others (Source: openai/gpt-2 src/encoder.py, bytes_to_unicode).
unsigned char byte_of_gpt2_id(int id);

/// Spelling of bytes in vocab.json, merges.txt, tokenizer.json: a printable character for each.
std::string to_alphabet(std::string_view bytes);
/// Nothing when a character of `text` is not of that alphabet.
std::optional<std::string> from_alphabet(std::string_view text);

/// U+2581, as which vocabularies with `characters` write a space.
inline constexpr std::string_view written_space = "\xe2\x96\x81";
/// The text with a space for each U+2581.
std::string with_spaces(std::string_view text);
/// The byte of a fallback token: of "<0x0A>", 10.
std::optional<char> byte_named(std::string_view name);
/// How vocabularies spell a token: with `characters`, or in the alphabet of bytes.
std::string spelling_of(const Vocabulary& vocabulary, Token id);

/// Ordinary tokens by their bytes.
using TokenOfBytes = std::unordered_map<std::string_view, Token>;

TokenOfBytes ordinary_tokens(const Vocabulary& vocabulary);
/// Two tokens whose bytes together are a third.
struct MadeToken {
  Token left, right, token;
};
/// All of them, up to somewhat more than most_pairs, by the token made and the place of the cut.
std::vector<MadeToken> made_tokens(const Vocabulary& vocabulary, const TokenOfBytes& ids);

/// Puts a token at its id. Returns what is wrong, or "".
std::string put_token(Vocabulary& vocabulary, std::int64_t id, VocabularyEntry entry);

/// The first special token of this name; of any, where that is "".
std::optional<Token> special_named(const Vocabulary& vocabulary, std::string_view name);

/// The special token that begins documents, by name; the only one where there is just one.
std::optional<Token> find_end_of_text(const Vocabulary& vocabulary);

/// As Tokenizer::ends_of_text() has it, by name.
std::vector<Token> find_ends_of_text(const Vocabulary& vocabulary);

/// A tokenizer for it. `source` is what mistakes are about. Throws UserError: bytes without a
/// token, two tokens of the same bytes, a merge whose result is not a token, a pair that is merged
/// twice.
std::shared_ptr<const Tokenizer> make_tokenizer(Vocabulary vocabulary, const std::string& source);

/// How Tokenizer::serialized() begins, by kind; of bytes it is the whole text.
inline constexpr std::string_view serialized_bytes = "trireme tokenizer 1\nkind bytes\n";
inline constexpr std::string_view serialized_bpe = "trireme tokenizer 1\nkind bpe\n";

/// The text form; vocabulary_from() throws UserError for anything else.
std::string to_text(const Vocabulary& vocabulary);
Vocabulary vocabulary_from(std::string_view text);
/// As Tokenizer::hash() has it.
std::uint64_t hash_of(const Vocabulary& vocabulary);

}  // namespace trireme::text
