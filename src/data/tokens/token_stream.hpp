// SPDX-License-Identifier: Apache-2.0
// One logical sequence of token ids from a cache of text, from several shards, or generated. It
// never changes during a run.
//
// Threads: every member is const and safe to call from several threads.
//
// 1. read() gives the same tokens on every rank and in every run that has the same content_hash().
// 2. Every token is in [0, vocabulary()).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/random.hpp"

#include "tokens/token_index.hpp"

namespace trireme::tokens {

/// Bytes per token in files: 2 where every id below `vocabulary` fits, else 4.
inline int width_of(std::int64_t vocabulary) {
  return vocabulary <= (std::int64_t{1} << 16U) ? 2 : 4;
}
/// Appends the tokens as little-endian numbers of `width` (1, 2 or 4) bytes, which hold them.
void pack_tokens(std::span<const std::int32_t> tokens, int width, std::vector<std::byte>& out);

class TokenStream {
 public:
  struct Facts {
    std::int64_t size = 0;           ///< number of tokens
    std::int64_t vocabulary = 0;     ///< every token is below it; 256 for bytes
    std::uint64_t content_hash = 0;  ///< of all tokens; checkpoints and ranks compare it
    std::string description = {};    ///< a line for the log, with the place
  };

  explicit TokenStream(Facts facts) : facts_(std::move(facts)) {}
  TokenStream(const TokenStream&) = delete;
  TokenStream& operator=(const TokenStream&) = delete;
  virtual ~TokenStream() = default;

  [[nodiscard]] std::int64_t size() const { return facts_.size; }
  [[nodiscard]] std::int64_t vocabulary() const { return facts_.vocabulary; }
  [[nodiscard]] std::uint64_t content_hash() const { return facts_.content_hash; }
  [[nodiscard]] const std::string& description() const { return facts_.description; }
  /// Copies the tokens [begin, begin + out.size()). Requires that range inside [0, size()).
  void read(std::int64_t begin, std::span<std::int32_t> out) const {
    TRIREME_EXPECT(begin >= 0 && begin + std::ssize(out) <= size(), "tokens [{}, {}) of {}", begin,
                   begin + std::ssize(out), size());
    copy(begin, out);
  }

 private:
  virtual void copy(std::int64_t begin, std::span<std::int32_t> out) const = 0;

  Facts facts_;
};

/// Files, one after the other. A file is opened when a token of it is first read, so a rank opens
/// only the files that it reads, and at most most_open() are open at a time. A block is compared with
/// its hash when it is first read from, so a flipped bit or a foreign file is found before a token of
/// it is used, and blocks that are not read cost nothing. read() throws StorageError when a file was
/// changed meanwhile: cut, bytes that do not match its hashes, a token outside the vocabulary.
class FileTokens : public TokenStream {
 public:
  /// 256, or a quarter of what `ulimit -n` allows.
  static std::size_t most_open();

  FileTokens(std::vector<TokenFile> files, Facts facts);

 private:
  struct Hashes {
    std::vector<std::uint64_t> blocks;
    std::unique_ptr<std::atomic<bool>[]> checked;
  };
  struct Opened {
    std::shared_ptr<const files::InputFile> file;
    std::shared_ptr<const Hashes> hashes;  ///< stay when the file is closed; null: not compared
  };

  void copy(std::int64_t begin, std::span<std::int32_t> out) const override;
  /// The file, opened where it is not; then the one that was opened first of too many is closed.
  Opened opened(std::size_t number) const;
  /// Compares the blocks that hold these bytes of the tokens.
  static void check(const TokenFile& file,
                    const Opened& opened,
                    std::int64_t begin,
                    std::int64_t end);

  const std::vector<TokenFile> files_;
  std::vector<std::int64_t> ends_;  // running sum of tokens
  mutable std::mutex mutex_;        // guards what follows
  mutable std::vector<Opened> opened_;
  mutable std::deque<std::size_t> open_;  // in the order of their opening
};

/// Another stream with a token in front of each document. Where documents begin is held in memory,
/// 8 bytes each.
class MarkedTokens : public TokenStream {
 public:
  /// `documents`: the tokens of `stream` at which documents begin, in increasing order.
  MarkedTokens(std::unique_ptr<TokenStream> stream,
               std::vector<std::int64_t> documents,
               std::int32_t mark);

 private:
  void copy(std::int64_t begin, std::span<std::int32_t> out) const override;
  /// The place of the mark of document `k`.
  [[nodiscard]] std::int64_t mark_of(std::int64_t k) const {
    return documents_[static_cast<std::size_t>(k)] + k;
  }

  std::unique_ptr<TokenStream> stream_;
  std::vector<std::int64_t> documents_;
  std::int32_t mark_;
};

class HeldTokens final : public TokenStream {
 public:
  /// Throws ContractError for a token that is not below `vocabulary`.
  HeldTokens(std::vector<std::int32_t> tokens, std::int64_t vocabulary, std::string description);

 private:
  void copy(std::int64_t begin, std::span<std::int32_t> out) const override;

  const std::vector<std::int32_t> tokens_;
};

/// Made-up tokens that a model can learn, for benchmarks and tests: no file, any length, any
/// vocabulary. The stream is a chain of phrases of 16 tokens, each drawn from a book of 64 phrases
/// of random tokens. A model that has learned the book and sees the beginning of a phrase predicts
/// the rest; what remains is the choice of the next phrase, ln(64) / 16 = 0.26 nats per token.
///
/// A token is a pure function of (seed, vocabulary, index).
class SyntheticTokens : public TokenStream {
 public:
  static constexpr std::int64_t phrase_tokens = 16;
  static constexpr std::int64_t phrases = 64;

  /// Requires size >= 1 and vocabulary >= 1.
  SyntheticTokens(std::int64_t size, std::int64_t vocabulary, std::uint64_t seed);

 private:
  void copy(std::int64_t begin, std::span<std::int32_t> out) const override;

  RandomKey key_;
};

}  // namespace trireme::tokens
