// SPDX-License-Identifier: Apache-2.0
// The index of a token file: what reading all of its tokens once has shown, so that no later start
// reads them again. With it, a file of any size is opened by a look at its header.
//
//   X.bin.index               next to a shard of `trireme tokenize`, whose manifest has its hash
//   CACHE/tokens-HASH.index   for a file of another program, whose path has this hash; it is good
//                             while size, times and inode of the file stay what they were
//
// Format, all numbers little-endian: a header of 128 bytes (IndexHeader), the hash of every block
// of tokens (8 bytes each), then the token at which each document begins (8 bytes each), and nothing
// after that. Hashes cover all of it. The bytes of the tokens are hashed in blocks of 64 KiB (XXH64;
// the last one may be shorter) when the file is written or checked.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "base/hash.hpp"
#include "base/round_up.hpp"
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

/// Where the tokens of one file are.
struct TokenFile {
  std::string path;
  std::int64_t file_bytes = 0, offset = 0, tokens = 0;
  int width = 0;  ///< bytes per token: 1, 2, 4 or 8; the numbers are unsigned
  /// The file that holds the hashes of its blocks, and their hash. Empty: what is read is not
  /// compared with anything.
  std::string index = {};
  std::uint64_t hash = 0;

  /// Throws StorageError when the file has another size than stated.
  [[nodiscard]] files::InputFile open() const;
  [[nodiscard]] std::int64_t num_blocks() const { return divided_up(tokens * width, block_bytes); }
  /// A block of the opened file. Returns its part of `room`, which has block_bytes.
  std::span<const std::byte> read_block(const files::InputFile& file,
                                        std::int64_t block,
                                        std::span<std::byte> room) const;
  auto fields() { return std::tie(path, file_bytes, offset, tokens, width, index, hash); }
};

/// Changes when a file is replaced or written to. Unlike modified_ns, no program can set changed_ns.
struct FileIdentity {
  std::int64_t bytes = 0, modified_ns = 0, changed_ns = 0, inode = 0;

  bool operator==(const FileIdentity&) const = default;
};
FileIdentity identity_of(const std::string& path);

/// Searches for no end of text.
inline constexpr std::int32_t no_end_of_text = -1;

/// The index of a whole file, or of consecutive blocks.
struct TokenIndex {
  std::vector<std::uint64_t> blocks;    ///< the hash of each
  std::vector<std::int64_t> documents;  ///< the tokens that are the end of text
  std::uint64_t highest = 0;            ///< the largest token, as an unsigned number
  std::int64_t highest_at = 0;          ///< the first place where it is

  auto fields() { return std::tie(blocks, documents, highest, highest_at); }
  void append(const TokenIndex& next);
};

struct IndexHeader {
  std::array<char, 8> magic{};
  std::uint32_t version = 0, width = 0;
  std::int64_t tokens = 0;
  std::uint64_t hash = 0;  ///< of the hashes of the blocks, in whatever files they are
  std::uint64_t highest = 0;
  std::int64_t highest_at = 0;
  std::int64_t end_of_text = no_end_of_text;  ///< what documents begin with
  std::int64_t documents = 0;
  std::uint64_t documents_hash = 0;
  FileIdentity identity;
  std::array<std::uint64_t, 2> zero{};
  std::uint64_t checksum = 0;  ///< of the bytes before it
};
static_assert(sizeof(IndexHeader) == 128);

/// Makes an index of tokens that come in their order.
class Indexer {
 public:
  /// For tokens of `width` bytes, from token `first` of the file on, which begins a block.
  Indexer(int width, std::int32_t end_of_text, std::int64_t first = 0)
      : width_(width), end_of_text_(end_of_text), next_(first) {}

  /// Requires: whole tokens.
  void add(std::span<const std::byte> bytes);
  /// Nothing may be added afterwards.
  TokenIndex finish();

 private:
  int width_;
  std::int32_t end_of_text_;
  std::int64_t next_;
  TokenIndex index_;
  std::vector<std::byte> block_;  ///< not full
};

/// Reads the blocks [begin, end) of a file. `report` gets the bytes of each.
TokenIndex index_blocks(const TokenFile& file,
                        std::int64_t begin,
                        std::int64_t end,
                        std::int32_t end_of_text,
                        const std::function<void(std::int64_t)>& report);

/// The index of the shard at `path` of `trireme tokenize`.
inline std::string index_of_shard(const std::string& path) {
  return path + ".index";
}
/// The header for the index of a whole file.
IndexHeader header_of(const TokenFile& file,
                      const TokenIndex& index,
                      std::int32_t end_of_text,
                      const FileIdentity& identity = {});
/// Writes an index, and replaces an older one.
void write_index(const std::string& path, const IndexHeader& header, const TokenIndex& index);
/// The header of an index that is whole; nothing when there is none, or it is damaged. Throws
/// UserError when another file is in its place.
std::optional<IndexHeader> read_index_header(const std::string& path);
/// Where documents begin. Throws StorageError when they do not have their hash.
std::vector<std::int64_t> read_documents(const std::string& path);
/// The hashes of the blocks. Throws StorageError when they do not have `hash`.
std::vector<std::uint64_t> read_block_hashes(const TokenFile& file);

}  // namespace trireme::tokens
