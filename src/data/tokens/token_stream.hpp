// SPDX-License-Identifier: Apache-2.0
// One logical sequence of token ids from a cache of text, from several shards, or generated. It
// never changes during a run.
//
// Threads: every member is const and safe to call from several threads.
//
// 1. read() gives the same tokens on every rank and in every run that has the same content_hash().
// 2. Every token is in [0, vocabulary()).
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "tokens/segment.hpp"

namespace trireme::tokens {

/// Bytes per token in files: 2 where every id below `vocabulary` fits, else 4.
inline int width_of(std::int64_t vocabulary) {
  return vocabulary <= (std::int64_t{1} << 16U) ? 2 : 4;
}
/// Appends the tokens as little-endian numbers of `width` (1, 2 or 4) bytes, which hold them.
void pack_tokens(std::span<const std::int32_t> tokens, int width, std::vector<std::byte>& out);

class TokenStream {
 public:
  TokenStream() = default;
  TokenStream(const TokenStream&) = delete;
  TokenStream& operator=(const TokenStream&) = delete;
  virtual ~TokenStream() = default;

  /// Number of tokens.
  [[nodiscard]] virtual std::int64_t size() const = 0;
  /// Every token is below this bound; 256 for bytes.
  [[nodiscard]] virtual std::int64_t vocabulary() const = 0;
  /// Identifies the content with all of its tokens. A run that resumes compares it with that in its
  /// checkpoint, and ranks compare theirs.
  [[nodiscard]] virtual std::uint64_t content_hash() const = 0;
  /// A line for the log that describes the stream and its place.
  [[nodiscard]] virtual std::string description() const = 0;
  /// Copies the tokens [begin, begin + out.size()). Requires that range inside [0, size()).
  virtual void read(std::int64_t begin, std::span<std::int32_t> out) const = 0;
};

/// Segments, one after the other; of those that are opened when they are read, at most
/// most_open() are open at a time. read() throws StorageError when a file was changed meanwhile:
/// cut, bytes that do not match its hashes, a token outside the vocabulary.
class FileTokens : public TokenStream {
 public:
  /// 256, or a quarter of what `ulimit -n` allows.
  static std::size_t most_open();

  FileTokens(std::vector<Segment> segments,
             std::int64_t vocabulary,
             std::uint64_t content_hash,
             std::string description);

  [[nodiscard]] std::int64_t size() const override { return ends_.empty() ? 0 : ends_.back(); }
  [[nodiscard]] std::int64_t vocabulary() const override { return vocabulary_; }
  [[nodiscard]] std::uint64_t content_hash() const override { return content_hash_; }
  [[nodiscard]] std::string description() const override { return description_; }
  void read(std::int64_t begin, std::span<std::int32_t> out) const override;

 private:
  /// Counts an opened file, and closes the one that was opened first of too many.
  void note_opened(std::size_t segment) const;

  std::vector<Segment> segments_;
  std::vector<std::int64_t> ends_;  // running sum of tokens
  std::int64_t vocabulary_;
  std::uint64_t content_hash_;
  std::string description_;
  mutable std::mutex mutex_;
  mutable std::deque<std::size_t> open_;  // segments, in the order of their opening
};

/// Another stream with a token in front of each document. Where documents begin is held in memory,
/// 8 bytes each.
class MarkedTokens : public TokenStream {
 public:
  /// `documents`: the tokens of `stream` at which documents begin, in increasing order.
  MarkedTokens(std::unique_ptr<TokenStream> stream,
               std::vector<std::int64_t> documents,
               std::int32_t mark);

  [[nodiscard]] std::int64_t size() const override {
    return stream_->size() + std::ssize(documents_);
  }
  [[nodiscard]] std::int64_t vocabulary() const override;
  [[nodiscard]] std::uint64_t content_hash() const override;
  [[nodiscard]] std::string description() const override { return stream_->description(); }
  void read(std::int64_t begin, std::span<std::int32_t> out) const override;

 private:
  /// The place of the mark of document `k`.
  [[nodiscard]] std::int64_t mark_of(std::int64_t k) const {
    return documents_[static_cast<std::size_t>(k)] + k;
  }

  std::unique_ptr<TokenStream> stream_;
  std::vector<std::int64_t> documents_;
  std::int32_t mark_;
};

}  // namespace trireme::tokens
