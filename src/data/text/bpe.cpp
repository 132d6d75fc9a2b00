// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <atomic>
#include <bitset>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/text.hpp"

#include "text/characters.hpp"
#include "text/merging.hpp"
#include "text/piece_cache.hpp"
#include "text/spellings.hpp"
#include "text/vocabulary.hpp"

namespace trireme::text {
namespace {

/// The number of two bytes.
std::size_t neighbours(const char* second) {
  return static_cast<unsigned char>(second[-1]) * std::size_t{256} +
         static_cast<unsigned char>(*second);
}

/// The text with_spaces(), and with one more before it when `prefixed`.
std::string_view spaced(std::string_view text, bool prefixed, std::string& room) {
  if (!prefixed && text.find(written_space) == std::string_view::npos)
    return text;
  return room = (prefixed ? " " : "") + with_spaces(text);
}

class Bpe final : public Tokenizer {
 public:
  Bpe(Vocabulary vocabulary, const std::string& source);

  std::int64_t vocabulary() const override { return std::ssize(vocabulary_.tokens); }
  std::optional<Token> end_of_text() const override { return vocabulary_.end_of_text; }
  std::optional<Token> begin_of_text() const override { return vocabulary_.begin_of_text; }
  std::vector<Token> ends_of_text() const override { return find_ends_of_text(vocabulary_); }
  std::vector<std::pair<std::string, Token>> special_tokens() const override {
    std::vector<std::pair<std::string, Token>> found;
    for (Token id = 0; id < vocabulary(); ++id)
      if (vocabulary_[id].special)
        found.emplace_back(vocabulary_[id].bytes, id);
    return found;
  }
  std::vector<std::string> uncut() const override {
    std::vector<std::string> all = added_.spellings.texts();
    for (const VocabularyEntry& entry : vocabulary_.tokens)
      if (vocabulary_.characters && entry.ordinary() &&
          next_cut(entry.bytes, 1, true) < entry.bytes.size())
        all.push_back(entry.bytes);
    return all;
  }
  std::string kind() const override { return "bpe"; }
  std::uint64_t hash() const override { return hash_; }
  std::string serialized() const override { return to_text(vocabulary_); }
  void encode(std::string_view text, std::vector<Token>& out) const override {
    encode_from(text, true, added_, out);
  }
  void encode_commands(std::string_view text, std::vector<Token>& out) const override {
    encode_from(text, true, all_, out);
  }
  void encode_rest(std::string_view text, std::vector<Token>& out) const override {
    encode_from(text, false, added_, out);
  }
  void decode(std::span<const Token> tokens, std::string& out) const override {
    for (const Token token : tokens)
      if (const VocabularyEntry& entry = entry_of(token); !entry.special)
        out += entry.bytes;
  }
  std::int32_t bytes_of(Token token) const override {
    const VocabularyEntry& entry = entry_of(token);
    return entry.special ? 0 : static_cast<std::int32_t>(entry.bytes.size());
  }

 private:
  const VocabularyEntry& entry_of(Token token) const {
    TRIREME_EXPECT(token >= 0 && token < vocabulary(), "token {} of {}", token, vocabulary());
    return vocabulary_[token];
  }
  TokenOfBytes tokens_of_bytes(const std::string& source) {
    Findings findings;
    TokenOfBytes ids;
    ids.reserve(vocabulary_.tokens.size());
    byte_tokens_.fill(-1);
    for (Token token = 0; token < vocabulary(); ++token) {
      const VocabularyEntry& entry = vocabulary_[token];
      if (entry.fallback)
        byte_tokens_[static_cast<unsigned char>(entry.bytes.front())] = token;
      if (!entry.ordinary())
        continue;
      if (const auto [at, fresh] = ids.emplace(entry.bytes, token); !fresh)
        findings.add({source}, "",
                     fmt::format("tokens {} and {} have the same bytes, {}", at->second, token,
                                 to_alphabet(entry.bytes)));
    }
    for (std::size_t b = 0; b < 256; ++b) {
      const char byte = static_cast<char>(b);
      if (const auto at = ids.find(std::string_view(&byte, 1)); at != ids.end())
        byte_tokens_[b] = at->second;
      else if (byte_tokens_[b] < 0)
        findings.add({source}, "",
                     fmt::format("no token for the byte 0x{:02X}; a vocabulary has one for each of "
                                 "the 256 bytes",
                                 b));
    }
    findings.settle();
    return ids;
  }
  void add_listed(const TokenOfBytes& ids, const std::string& source) {
    Findings findings;
    merges_ = MergeTable(vocabulary_.merges.size());
    std::uint32_t rank = 0;
    for (const auto& [left, right] : vocabulary_.merges) {
      const std::string &first = entry_of(left).bytes, &second = entry_of(right).bytes;
      const auto made = ids.find(first + second);
      if (made == ids.end())
        findings.add({source}, "",
                     fmt::format("merge {} makes {}, which is no ordinary token of the vocabulary",
                                 rank + 1, to_alphabet(first + second)));
      else if (!merges_.add(left, right, rank, made->second))
        findings.add({source}, "",
                     fmt::format("merge {} occurs twice: {} {}", rank + 1, to_alphabet(first),
                                 to_alphabet(second)));
      ++rank;
    }
    findings.settle();
  }
  void add_ranked(const TokenOfBytes& ids, const std::string& source) {
    const std::vector<MadeToken> made = made_tokens(vocabulary_, ids);
    if (made.size() > most_pairs)
      throw UserError(
          {source}, fmt::format("its tokens are made of more than {} pairs of others", most_pairs));
    merges_ = MergeTable(made.size());
    for (const auto& [left, right, token] : made)
      merges_.add(left, right,
                  vocabulary_.rule == MergeRule::scored
                      ? vocabulary_.ranks[static_cast<std::size_t>(token)]
                      : static_cast<std::uint32_t>(token),
                  token);
  }
  void find_whole_pieces(const TokenOfBytes& ids) {
    const bool always = vocabulary_.whole_pieces || vocabulary_.rule == MergeRule::ranked;
    for (const auto& [bytes, id] : ids)
      if (vocabulary_.characters) {
        if (character_bytes(bytes) == bytes.size())
          whole_.emplace(bytes, id);  // for first_tokens()
        for (std::size_t i = 1; i < bytes.size(); ++i) together_.set(neighbours(&bytes[i]));
      }
    TokenOfBytes whole;
    std::vector<Token> parts;
    for (const auto& [bytes, id] : ids) {
      parts.resize(bytes.size());
      if (always || merges_.merge({parts.data(), first_tokens(bytes, parts.data())}) == 1)
        whole.emplace(bytes, id);
    }
    whole_ = std::move(whole);
  }
  /// Tokens by their spelling.
  struct Named {
    Spellings spellings;
    std::vector<Token> ids;
  };
  [[nodiscard]] Named named(bool with_special) const {
    Named found;
    std::vector<std::string> texts;
    for (Token id = 0; id < vocabulary(); ++id)
      if (vocabulary_[id].added || (with_special && vocabulary_[id].special)) {
        texts.push_back(vocabulary_[id].bytes);
        found.ids.push_back(id);
      }
    found.spellings = Spellings(std::move(texts));
    return found;
  }
  /// `begins`: nothing of the text is before it.
  void encode_from(std::string_view text,
                   bool begins,
                   const Named& apart,
                   std::vector<Token>& out) const {
    std::string whole, room;
    if (vocabulary_.prefix == SpacePrefix::text)
      text = spaced(text, begins && !text.empty(), whole);
    for (std::size_t at = 0; at < text.size();) {
      const Spellings::Found found = apart.spellings.find(text, at);
      std::string_view part = text.substr(at, found.at - at);
      const bool first = at == 0;
      if (vocabulary_.nfc && !is_surely_nfc(part))
        part = room = nfc(part);
      if (vocabulary_.characters)
        part = spaced(part, (begins || !first) && wants_space(part, first), room);
      encode_part(part, out);
      if (found.at == std::string_view::npos)
        return;
      out.push_back(apart.ids[found.number]);
      at = found.at + apart.spellings.texts()[found.number].size();
    }
  }
  [[nodiscard]] bool wants_space(std::string_view part, bool first) const {
    const SpacePrefix prefix = vocabulary_.prefix;
    if (prefix == SpacePrefix::parts)
      return !part.empty();
    const bool word = !part.empty() && part.front() != ' ' && !part.starts_with(written_space);
    return word && (prefix == SpacePrefix::words || (prefix == SpacePrefix::first_word && first));
  }

  /// Of text without added tokens.
  void encode_part(std::string_view text, std::vector<Token>& out) const {
    PieceCache& cache = PieceCache::of_thread(number_);
    // Pieces wait for their entries to come from memory.
    std::array<PieceKey, 64> waiting;
    std::array<Token, waiting.size() * PieceKey::most_bytes> tokens;
    std::size_t count = 0;
    const char* const end = text.data() + text.size();
    const auto flush = [&] {
      Token* next = tokens.data();
      for (const PieceKey& key : std::span(waiting).first(count)) {
        PieceCache::Entry& entry = cache.place_of(key);
        if (!cache.holds(entry, key))
          cache.put(entry, key, next, tokens_of(key.piece(), next));
        if (entry.count() > 0)
          std::memcpy(next, entry.tokens, sizeof entry.tokens);
        next += entry.count() > 0 ? entry.count() : long_tokens(key.piece(), cache, next);
      }
      out.insert(out.end(), tokens.data(), next);
      count = 0;
    };
    const auto take = [&](std::string_view piece) {
      if (piece.size() > PieceKey::most_bytes) {
        flush();
        const std::size_t before = out.size();
        out.resize(before + piece.size());
        out.resize(before + long_tokens(piece, cache, out.data() + before));
        return;
      }
      waiting[count] = PieceKey::of(piece.data(), piece.size(), end);
      cache.prefetch(waiting[count]);
      if (++count == waiting.size())
        flush();
    };
    if (vocabulary_.characters)
      split_apart(text, take);
    else
      split(vocabulary_.pattern, text, take);
    flush();
  }
  /// Writes the tokens that merges begin with, which are at most the bytes. Returns their number.
  std::size_t first_tokens(std::string_view piece, Token* out) const {
    Token* next = out;
    for (std::size_t at = 0, bytes = 1; at < piece.size(); at += bytes) {
      bytes = vocabulary_.characters ? character_bytes(piece.substr(at)) : 1;
      if (const auto whole = bytes > 1 ? whole_.find(piece.substr(at, bytes)) : whole_.end();
          whole != whole_.end())
        *next++ = whole->second;
      else
        for (const char c : piece.substr(at, bytes))
          *next++ = byte_tokens_[static_cast<unsigned char>(c)];
    }
    return static_cast<std::size_t>(next - out);
  }
  /// Calls take(piece): cuts a text with `characters` where no token has the two bytes together.
  template <class Take>
  void split_apart(std::string_view text, Take&& take) const {
    std::size_t begin = 0;
    for (std::size_t i = 1; i < text.size(); ++i)
      if (!together_.test(neighbours(&text[i]))) {
        take(text.substr(begin, i - begin));
        begin = i;
      }
    if (begin < text.size())
      take(text.substr(begin));
  }
  /// Writes the tokens of a piece, which are at most its bytes. Returns their number.
  std::size_t tokens_of(std::string_view piece, Token* out) const {
    if (const auto whole = whole_.find(piece); whole != whole_.end()) {
      *out = whole->second;
      return 1;
    }
    return merges_.merge({out, first_tokens(piece, out)});
  }
  /// The same for a long piece, or one of many tokens.
  std::size_t long_tokens(std::string_view piece, PieceCache& cache, Token* out) const {
    if (piece.size() > PieceCache::most_long_bytes)
      return tokens_of(piece, out);
    PieceCache::LongEntry& entry = cache.place_of(piece);
    if (entry.tokenizer != number_ || entry.piece != piece) {
      entry.tokenizer = number_;
      entry.piece = piece;
      entry.tokens.assign(out, out + tokens_of(piece, out));
    }
    std::ranges::copy(entry.tokens, out);
    return entry.tokens.size();
  }

  const Vocabulary vocabulary_;
  std::array<Token, 256> byte_tokens_{};
  std::bitset<65536> together_;  ///< two bytes that are neighbours in a token, with `characters`
  MergeTable merges_{0};
  TokenOfBytes whole_;  ///< pieces that are a token without merges
  Named added_, all_;
  std::uint64_t hash_ = 0;
  std::uint32_t number_ = 0;  ///< of this tokenizer in this process
};

Bpe::Bpe(Vocabulary vocabulary, const std::string& source) : vocabulary_(std::move(vocabulary)) {
  static std::atomic<std::uint32_t> tokenizers{0};
  number_ = ++tokenizers;
  TRIREME_EXPECT(number_ < PieceCache::most_tokenizers, "{} tokenizers", number_);
  const TokenOfBytes ids = tokens_of_bytes(source);
  if (vocabulary_.rule == MergeRule::listed)
    add_listed(ids, source);
  else
    add_ranked(ids, source);
  find_whole_pieces(ids);
  added_ = named(false);
  all_ = named(true);
  hash_ = hash_of(vocabulary_);
}

}  // namespace

std::shared_ptr<const Tokenizer> make_tokenizer(Vocabulary vocabulary, const std::string& source) {
  return std::make_shared<const Bpe>(std::move(vocabulary), source);
}

}  // namespace trireme::text
