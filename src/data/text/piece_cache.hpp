// SPDX-License-Identifier: Apache-2.0
// Caches the tokens of pieces that occurred before: one cache per thread, shared by all tokenizers
// of the process.
//
// Short pieces: an entry is 32 bytes, a piece of up to 15 bytes with its length, up to 3 tokens, and
// the number of the tokenizer that computed them. Pieces of more tokens and longer ones, up to 256
// bytes (rulers of - and =, and words without spaces), have their own table. A piece has one place,
// and a later piece replaces an earlier one. An entry is always what the tokenizer would compute, so
// the cache never changes a result.
//
// 1. Pieces are compared byte by byte, not by their hash: a collision only costs time.
// 2. A tokenizer has its own number, of 28 bits, as long as the process lives.
// 3. 2 MiB per thread and at most 8192 longer pieces, from the first use to the end of the thread.
//
// Threads: a cache belongs to one thread; there is no lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.hpp"

#include "text/tokenizer.hpp"

namespace trireme::text {

/// A piece's bytes, zeros, and its length in the last byte.
struct PieceKey {
  static constexpr std::size_t most_bytes = 15;
  std::uint64_t words[2];
  bool operator==(const PieceKey&) const = default;

  /// Requires: 0 < bytes <= most_bytes. Reads up to 16 bytes where `end` allows.
  static PieceKey of(const char* at, std::size_t bytes, const char* end) {
    // The bytes at `kept` + 16 - bytes keep that number of bytes.
    static constexpr struct {
      std::uint64_t ones[2] = {~std::uint64_t{0}, ~std::uint64_t{0}}, zeros[2] = {};
    } kept;
    PieceKey key{};
    if (end - at >= 16) {
      std::uint64_t mask[2];
      std::memcpy(mask, reinterpret_cast<const char*>(&kept) + 16 - bytes, sizeof mask);
      std::memcpy(key.words, at, sizeof key.words);
      key.words[0] &= mask[0];
      key.words[1] &= mask[1];
    } else {
      std::memcpy(key.words, at, bytes);
    }
    key.words[1] |= std::uint64_t{bytes} << 56U;
    return key;
  }
  [[nodiscard]] std::string_view piece() const {
    return {reinterpret_cast<const char*>(words), static_cast<std::size_t>(words[1] >> 56U)};
  }
  /// Its place in the table: mixed just enough for 16 bytes, and never stored (stored hashes are
  /// XXH64, base/hash.hpp).
  [[nodiscard]] std::uint64_t hash() const {
    const std::uint64_t h = words[0] * 0x9E3779B97F4A7C15U + words[1];
    return (h ^ h >> 32U) * 0xD6E8FEB86659FD93U;
  }
};

class PieceCache {
 public:
  static constexpr std::size_t most_tokens = 3;
  static constexpr std::uint32_t most_tokenizers = 1U << 28U;
  struct alignas(32) Entry {
    PieceKey key{};
    std::uint32_t tokenizer = 0;  ///< its number, then 4 bits for the count of tokens; 0: too many
    Token tokens[most_tokens] = {};
    [[nodiscard]] std::uint32_t count() const { return tokenizer & 15U; }
  };
  static_assert(sizeof(Entry) == 32);

  /// This thread's, for the tokenizer of this number. Numbers count from 1.
  static PieceCache& of_thread(std::uint32_t tokenizer) {
    thread_local PieceCache cache;
    cache.stamp_ = tokenizer << 4U;
    return cache;
  }

  static constexpr std::size_t most_long_bytes = 256;
  struct LongEntry {
    std::uint32_t tokenizer = 0;
    std::string piece;
    std::vector<Token> tokens;
  };
  [[nodiscard]] LongEntry& place_of(std::string_view piece) {
    return long_entries_[hash_bytes(piece) % long_entries_.size()];
  }

  [[nodiscard]] Entry& place_of(const PieceKey& key) {
    return entries_[static_cast<std::size_t>(key.hash() >> (64U - log2_entries))];
  }
  /// For a piece whose tokens are needed soon.
  void prefetch(const PieceKey& key) { __builtin_prefetch(&place_of(key)); }
  [[nodiscard]] bool holds(const Entry& entry, const PieceKey& key) const {
    return entry.key == key && (entry.tokenizer & ~15U) == stamp_;
  }
  /// More than most_tokens tokens are not stored: the entry's count is 0.
  void put(Entry& entry, const PieceKey& key, const Token* tokens, std::size_t count) const {
    count = count > most_tokens ? 0 : count;
    entry.key = key;
    entry.tokenizer = stamp_ | static_cast<std::uint32_t>(count);
    std::memcpy(entry.tokens, tokens, count * sizeof(Token));
  }

 private:
  static constexpr unsigned log2_entries = 16;  // 2 MiB
  std::vector<Entry> entries_ = std::vector<Entry>(std::size_t{1} << log2_entries);
  std::vector<LongEntry> long_entries_{8192};
  std::uint32_t stamp_ = 0;
};

}  // namespace trireme::text
