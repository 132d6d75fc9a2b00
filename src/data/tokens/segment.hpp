// SPDX-License-Identifier: Apache-2.0
// The tokens of one file, and the hashes that show whether they are what was written.
//
// The bytes of the tokens are hashed in blocks of 64 KiB (XXH64; the last one may be shorter) when
// the file is written or checked (token_index.hpp). A segment compares a block with its hash when
// it first reads from the block, so a flipped bit or a foreign file is found before a token of it
// is used, and blocks that are not read cost nothing. The file is opened, and the hashes are read,
// when a token is first read, so a rank opens only the files that it reads.
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
#include <tuple>
#include <vector>

#include "base/hash.hpp"
#include "files/descriptor.hpp"

namespace trireme::tokens {

inline constexpr std::int64_t block_bytes = std::int64_t{64} << 10U;

/// Calls use(T()) with the unsigned type T of `width` bytes: 1, 2, 4 or 8.
template <class Use>
auto with_unsigned(int width, Use&& use) {
  switch (width) {
    case 1:
      return use(std::uint8_t{});
    case 2:
      return use(std::uint16_t{});
    case 4:
      return use(std::uint32_t{});
    default:
      return use(std::uint64_t{});
  }
}

inline std::uint64_t hash_of(std::span<const std::byte> bytes) {
  return hash_bytes({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}
/// Identifies the contents of the blocks: equal for equal bytes, in whatever files they are.
std::uint64_t hash_of_blocks(std::span<const std::uint64_t> hashes, std::int64_t bytes);

/// Where the tokens of one file are.
struct TokenFile {
  std::string path;
  std::int64_t file_bytes = 0, offset = 0, tokens = 0;
  int width = 0;  ///< bytes per token: 1, 2, 4 or 8; the numbers are unsigned
  /// The file that holds the hashes of its blocks, and their hash. Empty: what is read is not
  /// compared with anything.
  std::string index = {};
  std::uint64_t hash = 0;

  auto fields() { return std::tie(path, file_bytes, offset, tokens, width, index, hash); }
};

class Segment {
 public:
  /// Opens nothing yet.
  explicit Segment(TokenFile file);

  [[nodiscard]] const std::string& path() const { return file_.path; }
  [[nodiscard]] int token_bytes() const { return file_.width; }
  [[nodiscard]] std::int64_t tokens() const { return file_.tokens; }
  [[nodiscard]] std::int64_t bytes() const { return file_.tokens * file_.width; }
  [[nodiscard]] std::int64_t num_blocks() const {
    return (bytes() + block_bytes - 1) / block_bytes;
  }

  /// The bytes of the tokens from byte `begin` on. Throws StorageError when the file has another
  /// size than stated, cannot be read, or holds bytes that do not match its hashes.
  /// Returns whether the file had to be opened.
  bool read(std::int64_t begin, std::span<std::byte> bytes) const;
  /// The block, unchecked; `room` has block_bytes. Returns its part of `room`.
  std::span<const std::byte> read_block(std::int64_t block, std::span<std::byte> room) const;
  /// The next read opens the file again.
  void close() const;

 private:
  struct Hashes {
    std::vector<std::uint64_t> blocks;
    std::unique_ptr<std::atomic<bool>[]> checked;
  };
  struct Opened {
    std::shared_ptr<const files::InputFile> file;
    std::shared_ptr<const Hashes> hashes;  ///< stay when the file is closed; null: not compared
  };
  /// The file, opened where it is not; `fresh`: it was.
  Opened opened(bool& fresh) const;
  void check_block(const Opened& opened, std::int64_t block) const;
  std::span<const std::byte> read_block_of(const files::InputFile& file,
                                           std::int64_t block,
                                           std::span<std::byte> room) const;

  struct Handle {
    std::mutex mutex;
    Opened opened;
  };
  TokenFile file_;
  std::unique_ptr<Handle> handle_ = std::make_unique<Handle>();
};

}  // namespace trireme::tokens
