// SPDX-License-Identifier: Apache-2.0
// Caches the tokens of pieces that occurred before: one cache per thread, shared by all tokenizers
// of the process.
//
// Short pieces: an entry is 64 bytes, a piece of up to 23 bytes with its length, up to 9 tokens, and
// the number of the tokenizer that computed them. Longer pieces, up to 256 bytes (rulers of - and =,
// and words without spaces), have their own table. A piece has one place, and a later piece replaces
// an earlier one. An entry is always what the tokenizer would compute, so the cache never changes a
// result.
//
// 1. Pieces are compared byte by byte, not by their hash: a collision only costs time.
// 2. A tokenizer has its own number as long as the process lives. When 28 bits of it have wrapped
//    around, the table of short pieces is emptied; long entries store the whole number.
// 3. 4 MiB per thread and at most 1024 longer pieces, from the first use to the end of the thread.
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
  static constexpr std::size_t most_bytes = 23;
  std::uint64_t words[3];
  bool operator==(const PieceKey&) const = default;

  /// Requires: 0 < bytes <= most_bytes. Reads up to 24 bytes where `end` allows.
  static PieceKey of(const char* at, std::size_t bytes, const char* end) {
    PieceKey key{};
    if (end - at >= 24) {
      std::memcpy(key.words, at, 24);
      const std::size_t bits = 8 * bytes;
      const auto keep = [bits](std::size_t before) {
        return bits >= before + 64 ? ~std::uint64_t{0}
               : bits <= before    ? std::uint64_t{0}
                                   : (std::uint64_t{1} << (bits - before)) - 1;
      };
      key.words[0] &= keep(0);
      key.words[1] &= keep(64);
      key.words[2] &= keep(128);
    } else {
      std::memcpy(key.words, at, bytes);
    }
    key.words[2] |= std::uint64_t{bytes} << 56U;
    return key;
  }
  /// Its place in the table: mixed just enough for 24 bytes, and never stored (stored hashes are
  /// XXH64, base/hash.hpp).
  [[nodiscard]] std::uint64_t hash() const {
    std::uint64_t h = words[0] * 0x9E3779B97F4A7C15U + words[1] * 0xC2B2AE3D27D4EB4FU +
                      words[2] * 0x165667B19E3779F9U;
    h ^= h >> 32U;
    return h * 0xD6E8FEB86659FD93U;
  }
};

class PieceCache {
 public:
  static constexpr std::size_t most_tokens = 9;
  struct alignas(64) Entry {
    PieceKey key{};
    std::uint32_t tokenizer = 0;  ///< 28 bits of its number, then the count of tokens
    Token tokens[most_tokens] = {};
    [[nodiscard]] std::uint32_t count() const { return tokenizer & 15U; }
  };
  static_assert(sizeof(Entry) == 64);

  /// This thread's, for the tokenizer of this number. Numbers count from 1.
  static PieceCache& of_thread(std::uint64_t tokenizer) {
    thread_local PieceCache cache;
    if (cache.entries_.empty() || cache.epoch_ != tokenizer >> 28U) {
      cache.entries_.assign(std::size_t{1} << log2_entries, Entry{});
      cache.epoch_ = tokenizer >> 28U;
    }
    cache.stamp_ = static_cast<std::uint32_t>(tokenizer << 4U);
    return cache;
  }

  static constexpr std::size_t most_long_bytes = 256;
  struct LongEntry {
    std::uint64_t tokenizer = 0;
    std::string piece;
    std::vector<Token> tokens;
  };
  [[nodiscard]] LongEntry& place_of(std::string_view piece) {
    return long_entries_[hash_bytes(piece) % long_entries_.size()];
  }

  [[nodiscard]] Entry& place_of(const PieceKey& key) {
    return entries_[static_cast<std::size_t>(key.hash() >> (64U - log2_entries))];
  }
  [[nodiscard]] bool holds(const Entry& entry, const PieceKey& key) const {
    return entry.key == key && (entry.tokenizer & ~15U) == stamp_;
  }
  /// Requires: count <= most_tokens.
  void put(Entry& entry, const PieceKey& key, const Token* tokens, std::size_t count) const {
    entry.key = key;
    entry.tokenizer = stamp_ | static_cast<std::uint32_t>(count);
    std::memcpy(entry.tokens, tokens, count * sizeof(Token));
  }

 private:
  static constexpr unsigned log2_entries = 16;  // 4 MiB
  std::vector<Entry> entries_;
  std::vector<LongEntry> long_entries_{1024};
  std::uint64_t epoch_ = 0;
  std::uint32_t stamp_ = 0;
};

}  // namespace trireme::text
