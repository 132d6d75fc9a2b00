// SPDX-License-Identifier: Apache-2.0
#include "tokens/token_index.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include <sys/stat.h>

#include "base/error.hpp"
#include "files/output_file.hpp"

namespace trireme::tokens {
namespace {

constexpr std::array<char, 8> index_magic = {'t', 'r', 'i', 'r', 'e', 'm', 'e', 'I'};
constexpr std::uint32_t index_version = 1;

std::string_view bytes_of(const auto& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof values[0]};
}

std::uint64_t checksum_of(const IndexHeader& header) {
  return hash_bytes({reinterpret_cast<const char*>(&header), offsetof(IndexHeader, checksum)});
}

std::int64_t blocks_of(const IndexHeader& header) {
  return divided_up(header.tokens * header.width, block_bytes);
}

std::uint64_t hash_of_blocks(const std::vector<std::uint64_t>& hashes, const TokenFile& file) {
  return hash_bytes(bytes_of(hashes), static_cast<std::uint64_t>(file.tokens * file.width));
}

/// Whether the sizes are valid, and small enough that their products do not overflow.
bool has_sizes(const IndexHeader& header) {
  constexpr std::int64_t most = std::int64_t{1} << 56U;
  return std::has_single_bit(header.width) && header.width <= 8 && header.tokens >= 0 &&
         header.tokens <= most && header.documents >= 0 && header.documents <= header.tokens;
}

/// Searches tokens of which the first has the number `first`.
template <class Token>
void search(std::span<const std::byte> bytes,
            std::int64_t first,
            std::int32_t end_of_text,
            TokenIndex& index) {
  const std::size_t count = bytes.size() / sizeof(Token);
  const auto token = [&](std::size_t i) {
    Token value;  // tokens of a file need not be aligned
    std::memcpy(&value, bytes.data() + i * sizeof value, sizeof value);
    return value;
  };
  Token highest = 0;
  for (std::size_t i = 0; i < count; ++i) highest = std::max(highest, token(i));
  if (highest > index.highest) {
    std::size_t at = 0;
    while (token(at) != highest) ++at;
    index.highest = highest;
    index.highest_at = first + static_cast<std::int64_t>(at);
  }
  if (end_of_text < 0 || !std::in_range<Token>(end_of_text))
    return;
  for (std::size_t i = 0; i < count; ++i)
    if (token(i) == static_cast<Token>(end_of_text))
      index.documents.push_back(first + static_cast<std::int64_t>(i));
}

[[noreturn]] void refuse_index(const std::string& path) {
  throw StorageError("data", "read " + path,
                     "this index of a token file is damaged or was changed while it was in use. "
                     "Remove it and start again to check the whole file");
}

}  // namespace

files::InputFile TokenFile::open() const {
  files::InputFile file(path);
  if (file.size() != file_bytes)
    throw StorageError("file system", "read " + path,
                       fmt::format("it has {} bytes, and had {} when the run started, or has them "
                                   "on rank 0",
                                   file.size(), file_bytes));
  return file;
}

std::span<const std::byte> TokenFile::read_block(const files::InputFile& file,
                                                 std::int64_t block,
                                                 std::span<std::byte> room) const {
  const std::int64_t begin = block * block_bytes;
  const auto part =
      room.first(static_cast<std::size_t>(std::min(block_bytes, tokens * width - begin)));
  file.read(offset + begin, part);
  return part;
}

FileIdentity identity_of(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0)
    files::fail("look at " + path, errno);
  const auto nanoseconds = [](const timespec& time) {
    return std::int64_t{time.tv_sec} * 1'000'000'000 + std::int64_t{time.tv_nsec};
  };
  return {std::int64_t{status.st_size}, nanoseconds(status.st_mtim), nanoseconds(status.st_ctim),
          static_cast<std::int64_t>(status.st_ino)};
}

void TokenIndex::append(const TokenIndex& next) {
  if (next.highest > highest) {
    highest = next.highest;
    highest_at = next.highest_at;
  }
  blocks.insert(blocks.end(), next.blocks.begin(), next.blocks.end());
  documents.insert(documents.end(), next.documents.begin(), next.documents.end());
}

void Indexer::add(std::span<const std::byte> bytes) {
  with_unsigned(width_,
                [&](auto zero) { search<decltype(zero)>(bytes, next_, end_of_text_, index_); });
  next_ += std::ssize(bytes) / width_;
  constexpr auto whole = static_cast<std::size_t>(block_bytes);
  while (block_.size() + bytes.size() >= whole) {
    const auto rest = bytes.first(whole - block_.size());
    bytes = bytes.subspan(rest.size());
    if (!block_.empty())
      block_.insert(block_.end(), rest.begin(), rest.end());
    index_.blocks.push_back(hash_of(block_.empty() ? rest : block_));
    block_.clear();
  }
  block_.insert(block_.end(), bytes.begin(), bytes.end());
}

TokenIndex Indexer::finish() {
  if (!block_.empty())
    index_.blocks.push_back(hash_of(block_));
  return std::move(index_);
}

TokenIndex index_blocks(const TokenFile& file,
                        std::int64_t begin,
                        std::int64_t end,
                        std::int32_t end_of_text,
                        const std::function<void(std::int64_t)>& report) {
  const files::InputFile input = file.open();
  std::vector<std::byte> room(static_cast<std::size_t>(block_bytes));
  Indexer indexer(file.width, end_of_text, begin * (block_bytes / file.width));
  for (std::int64_t block = begin; block < end; ++block) {
    const auto bytes = file.read_block(input, block, room);
    indexer.add(bytes);
    report(std::ssize(bytes));
  }
  return indexer.finish();
}

IndexHeader header_of(const TokenFile& file,
                      const TokenIndex& index,
                      std::int32_t end_of_text,
                      const FileIdentity& identity) {
  IndexHeader header{.magic = index_magic,
                     .version = index_version,
                     .width = static_cast<std::uint32_t>(file.width),
                     .tokens = file.tokens,
                     .hash = hash_of_blocks(index.blocks, file),
                     .highest = index.highest,
                     .highest_at = index.highest_at,
                     .end_of_text = end_of_text,
                     .documents = std::ssize(index.documents),
                     .documents_hash = hash_bytes(bytes_of(index.documents)),
                     .identity = identity};
  header.checksum = checksum_of(header);
  return header;
}

void write_index(const std::string& path, const IndexHeader& header, const TokenIndex& index) {
  files::StagedFile staged(path);
  staged.file().write(std::as_bytes(std::span(&header, 1)));
  staged.file().write(bytes_of(index.blocks));
  staged.file().write(bytes_of(index.documents));
  staged.commit();
}

std::optional<IndexHeader> read_index_header(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0)
    return std::nullopt;
  const files::InputFile file(path);
  IndexHeader header;
  const std::size_t bytes = file.read_some(0, std::as_writable_bytes(std::span(&header, 1)));
  if (bytes > 0 && header.magic != index_magic)
    throw UserError(Place{path},
                    "this file has the name of an index of a token file and is none. Move it to "
                    "another place, or remove it, and start again");
  if (bytes < sizeof header || header.version != index_version ||
      header.checksum != checksum_of(header) || !has_sizes(header) ||
      file.size() != std::int64_t{sizeof header} + 8 * (blocks_of(header) + header.documents))
    return std::nullopt;
  return header;
}

std::vector<std::int64_t> read_documents(const std::string& path) {
  const auto header = read_index_header(path);
  if (!header)
    refuse_index(path);
  std::vector<std::int64_t> documents(static_cast<std::size_t>(header->documents));
  files::InputFile(path).read(std::int64_t{sizeof *header} + 8 * blocks_of(*header),
                              std::as_writable_bytes(std::span(documents)));
  if (hash_bytes(bytes_of(documents)) != header->documents_hash)
    refuse_index(path);
  return documents;
}

std::vector<std::uint64_t> read_block_hashes(const TokenFile& file) {
  std::vector<std::uint64_t> blocks(static_cast<std::size_t>(file.num_blocks()));
  files::InputFile(file.index).read(sizeof(IndexHeader), std::as_writable_bytes(std::span(blocks)));
  if (hash_of_blocks(blocks, file) != file.hash)
    refuse_index(file.index);
  return blocks;
}

}  // namespace trireme::tokens
