// SPDX-License-Identifier: Apache-2.0
// The file that holds tokenized text, so that ranks and later runs map it instead of reading the
// text again.
//
// Format, version 1, all numbers little-endian: a header of 128 bytes (CacheHeader), then `tokens`
// unsigned integers of `token_bytes` each, and nothing after them.
//
// Text becomes tokens file by file, in the order of find_text(). One token 10 (a newline) stands
// between two files where the first does not end with one. A file with a NUL byte in it is no text
// and is skipped, unless the deck gives it by its own name.
//
// 1. A cache is written under a temporary name beside its place, fsync'ed and renamed: under its
// own name it is always whole.
// 2. Whether it is older than the text is decided by the fingerprint of the sources (paths, sizes,
// times of modification), what it holds by the hash of the tokens.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "data/sources.hpp"
#include "data/token_stream.hpp"

namespace trireme::data {

struct CacheHeader {
  std::array<char, 8> magic{};
  std::uint32_t version = 0;
  std::uint32_t header_bytes = 0;
  std::uint32_t token_bytes = 0;
  std::uint32_t vocabulary = 0;
  std::uint64_t tokens = 0;
  std::uint64_t source_fingerprint = 0;
  std::uint64_t content_hash = 0;  // FNV-1a over the tokens' bytes
  std::uint64_t files = 0;         // that the tokens come from
  std::uint64_t binary_files = 0;  // skipped for a NUL byte
  std::array<std::uint64_t, 7> zero{};
  std::uint64_t checksum = 0;  // FNV-1a over the bytes before it
};
static_assert(sizeof(CacheHeader) == 128);

inline constexpr std::array<char, 8> cache_magic = {'t', 'r', 'i', 'r', 'e', 'm', 'e', 'T'};
inline constexpr std::uint32_t cache_version = 1;

/// Writes the cache of byte tokens at `path` and replaces an older one; makes the directory.
/// Throws UserError when an entry of the deck has no text in it, StorageError when writing or
/// reading fails. On any error `path` is what it was.
CacheHeader build_cache(const std::string& path,
                        const TextSources& sources,
                        const std::vector<std::string>& entries);

/// Reads and checks the header and the file's size. Throws UserError (one finding about `path`)
/// when the file is no cache, of another version, damaged or truncated.
CacheHeader read_cache_header(const std::string& path);

/// Maps a cache. Throws as read_cache_header() does.
std::unique_ptr<TokenStream> open_cache(const std::string& path);

}  // namespace trireme::data
