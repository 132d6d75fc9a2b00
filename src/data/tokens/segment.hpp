// SPDX-License-Identifier: Apache-2.0
// The tokens of one file, and the hashes that show whether they are what was written.
//
// The bytes of the tokens are hashed in blocks of 64 KiB (XXH64; the last one may be shorter) when
// the file is written or checked. A segment compares a block with its hash when it first reads from
// the block, so a flipped bit or a foreign file is found before a token of it is used, and blocks
// that are not read cost nothing. A file that is given by its path is opened when it is first read,
// so a rank opens only the files that it reads.
//
// Threads: const members are safe from several threads.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "files/input_file.hpp"

namespace trireme::tokens {

inline constexpr std::int64_t block_bytes = std::int64_t{64} << 10U;

/// One hash for every block of `bytes`.
class BlockHashes {
 public:
  void add(std::span<const std::byte> bytes);
  /// With the last block. Nothing may be added afterwards.
  std::vector<std::uint64_t> finish();

 private:
  std::vector<std::uint64_t> hashes_;
  std::vector<std::byte> open_;  ///< of the block that is not full
};

/// Identifies the contents of the blocks: equal for equal bytes, in whatever files they are.
std::uint64_t hash_of_blocks(std::span<const std::uint64_t> hashes, std::int64_t bytes);

class Segment {
 public:
  Segment() = default;
  /// `tokens` unsigned integers of `token_bytes` (1, 2, 4 or 8) bytes each, from byte `offset` on.
  Segment(files::InputFile file, std::int64_t offset, int token_bytes, std::int64_t tokens);
  /// The same of a file of `file_bytes` that is opened later; StorageError is thrown then when it
  /// has another size.
  Segment(std::string path,
          std::int64_t file_bytes,
          std::int64_t offset,
          int token_bytes,
          std::int64_t tokens);
  /// Compares everything that is read from now on with these hashes. Throws StorageError if their
  /// number is not that of the blocks.
  void expect(std::vector<std::uint64_t> hashes);

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] int token_bytes() const { return token_bytes_; }
  [[nodiscard]] std::int64_t tokens() const { return tokens_; }
  [[nodiscard]] std::int64_t bytes() const { return tokens_ * token_bytes_; }
  [[nodiscard]] std::int64_t num_blocks() const {
    return (bytes() + block_bytes - 1) / block_bytes;
  }

  /// The bytes of the tokens from byte `begin` on. Throws StorageError when the file was cut,
  /// cannot be read, or holds bytes that do not match its hashes.
  /// Returns whether the file had to be opened.
  bool read(std::int64_t begin, std::span<std::byte> bytes) const;
  /// The block, unchecked; `room` has block_bytes. Returns its part of `room`.
  std::span<const std::byte> read_block(std::int64_t block, std::span<std::byte> room) const;
  /// The first block that does not have its hash; -1: all do.
  [[nodiscard]] std::int64_t first_damaged() const;
  /// The next read opens the file again. Only for files that were given by their path.
  void close() const;

 private:
  using Opened = std::shared_ptr<const files::InputFile>;
  /// The file, opened where it is not; `fresh`: it was.
  Opened opened(bool& fresh) const;
  void check_block(const files::InputFile& file, std::int64_t block) const;
  std::span<const std::byte> read_block_of(const files::InputFile& file,
                                           std::int64_t block,
                                           std::span<std::byte> room) const;

  struct Handle {
    std::mutex mutex;
    Opened file;
  };
  std::string path_;
  std::int64_t file_bytes_ = 0;
  std::unique_ptr<Handle> handle_ = std::make_unique<Handle>();
  std::int64_t offset_ = 0;
  int token_bytes_ = 1;
  std::int64_t tokens_ = 0;
  std::vector<std::uint64_t> hashes_;
  std::unique_ptr<std::atomic<bool>[]> checked_;  ///< by block
};

}  // namespace trireme::tokens
