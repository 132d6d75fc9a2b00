// SPDX-License-Identifier: Apache-2.0
// The file that holds tokenized text, so that ranks and later runs read it instead of the text.
//
// Format, version 3, all numbers little-endian: a header of 128 bytes (CacheHeader), then `tokens`
// unsigned integers of `token_bytes` each, then the hash of every block of them (8 bytes each,
// segment.hpp), and nothing after that.
//
// Text becomes tokens file by file, in the order of find_text().
//
//   bytes      One token 10 (a newline) lies between two files where the first does not end with
//              one.
//   otherwise  The tokens of one document after the other (documents.hpp), each after the
//              tokenizer's end of text, where it has one; documents for validation come after all
//              others.
//
// 1. A cache is written under a temporary name in the same directory, fsync'ed and renamed, so
//    under its own name it is always complete. Remains of killed processes are removed before.
// 2. The fingerprint of the sources (paths, sizes, times, the bytes at both ends) shows whether the
//    cache is older than the text; the hash of the tokens identifies its contents.
// 3. Every bit is covered by a hash: the header by its checksum, the tokens by the hashes of their
//    blocks, and these by content_hash. A damaged cache is built again from the text.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "text/tokenizer.hpp"
#include "tokens/sources.hpp"
#include "tokens/text_format.hpp"
#include "tokens/token_stream.hpp"

namespace trireme::tokens {

struct CacheHeader {
  std::array<char, 8> magic{};
  std::uint32_t version = 0;
  std::uint32_t header_bytes = 0;
  std::uint32_t token_bytes = 0;
  std::uint32_t vocabulary = 0;
  std::uint64_t tokens = 0;
  std::uint64_t source_fingerprint = 0;
  std::uint64_t content_hash = 0;  // hash_of_blocks() of the hashes after the tokens
  std::uint64_t files = 0;         // that the tokens come from
  std::uint64_t binary_files = 0;  // skipped
  std::uint64_t tokenizer = 0;     // its hash; 0: bytes
  std::uint64_t documents = 0;     // where they were counted
  std::uint64_t validation = 0;    // tokens of documents for validation, which come last
  std::array<std::uint64_t, 4> zero{};
  std::uint64_t checksum = 0;  // stored_hash.hpp, over the bytes before it
};
static_assert(sizeof(CacheHeader) == 128);

inline constexpr std::array<char, 8> cache_magic = {'t', 'r', 'i', 'r', 'e', 'm', 'e', 'T'};
inline constexpr std::uint32_t cache_version = 3;

/// How the text is encoded.
struct Encoding {
  const text::Tokenizer* tokenizer = nullptr;  ///< null: bytes, as above
  TextFormat format = {};
  TextNotes* notes = nullptr;  ///< what was noticed is added to them
  /// Not 0: about this fraction of the documents, chosen by a hash, comes after the others.
  double validation_fraction = 0;
  std::vector<std::uint64_t>* begins = nullptr;  ///< of the files, in tokens
  /// Called before each file: bytes of files done, of all.
  std::function<void(std::int64_t, std::int64_t)> progress = {};
};

/// Writes the cache at `path` and replaces an older one; makes the directory. `key` names the deck
/// key of `entries`. Throws UserError when an entry of the deck has no text in it, or the text is
/// no JSON lines; StorageError when writing or reading fails. On any error `path` is what it was.
CacheHeader build_cache(const std::string& path,
                        const TextSources& sources,
                        const std::vector<std::string>& entries,
                        const Encoding& encoding = {},
                        const std::string& key = "data.train.text");

/// Reads all of a cache: "" and its header if it is intact, else what is wrong with it (another
/// version, damage), as in "is truncated: …". Throws UserError if the file is not a cache, and so
/// must not be replaced; StorageError if it cannot be read.
std::string cache_problem(const std::string& path, CacheHeader& header);

/// Opens a cache; its tokens are checked as they are read. Throws UserError when it is not a cache
/// or its header does not fit its size, StorageError when it cannot be read.
std::unique_ptr<TokenStream> open_cache(const std::string& path);

}  // namespace trireme::tokens
