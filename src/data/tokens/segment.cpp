// SPDX-License-Identifier: Apache-2.0
#include "tokens/segment.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "base/hash.hpp"

namespace trireme::tokens {
namespace {

std::uint64_t hash_of(std::span<const std::byte> bytes) {
  return hash_bytes({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

using Room = std::array<std::byte, static_cast<std::size_t>(block_bytes)>;

}  // namespace

void BlockHashes::add(std::span<const std::byte> bytes) {
  constexpr auto whole = static_cast<std::size_t>(block_bytes);
  while (!bytes.empty()) {
    if (open_.empty() && bytes.size() >= whole) {
      hashes_.push_back(hash_of(bytes.first(whole)));
      bytes = bytes.subspan(whole);
      continue;
    }
    const std::size_t count = std::min(whole - open_.size(), bytes.size());
    open_.insert(open_.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(count));
    bytes = bytes.subspan(count);
    if (open_.size() == whole) {
      hashes_.push_back(hash_of(open_));
      open_.clear();
    }
  }
}

std::vector<std::uint64_t> BlockHashes::finish() {
  if (!open_.empty())
    hashes_.push_back(hash_of(open_));
  return std::move(hashes_);
}

std::uint64_t hash_of_blocks(std::span<const std::uint64_t> hashes, std::int64_t bytes) {
  return hash_bytes({reinterpret_cast<const char*>(hashes.data()), hashes.size_bytes()},
                    static_cast<std::uint64_t>(bytes));
}

Segment::Segment(files::InputFile file, std::int64_t offset, int token_bytes, std::int64_t tokens)
    : Segment(file.path(), file.size(), offset, token_bytes, tokens) {
  handle_->file = std::make_shared<const files::InputFile>(std::move(file));
}

Segment::Segment(std::string path,
                 std::int64_t file_bytes,
                 std::int64_t offset,
                 int token_bytes,
                 std::int64_t tokens)
    : path_(std::move(path)),
      file_bytes_(file_bytes),
      offset_(offset),
      token_bytes_(token_bytes),
      tokens_(tokens) {
  TRIREME_EXPECT(token_bytes == 1 || token_bytes == 2 || token_bytes == 4 || token_bytes == 8,
                 "tokens of {} bytes", token_bytes);
  TRIREME_EXPECT(tokens >= 0 && offset >= 0 && offset + tokens * token_bytes <= file_bytes,
                 "{} tokens of {} bytes from byte {} in {}", tokens, token_bytes, offset, path_);
}

void Segment::expect(std::vector<std::uint64_t> hashes) {
  if (std::ssize(hashes) != num_blocks())
    throw StorageError("file system", "read " + path_,
                       fmt::format("it has {} blocks of tokens, and hashes for {}: it was changed "
                                   "while the run started",
                                   num_blocks(), hashes.size()),
                       __FILE__, __LINE__);
  hashes_ = std::move(hashes);
  checked_ = std::make_unique<std::atomic<bool>[]>(hashes_.size());
}

Segment::Opened Segment::opened(bool& fresh) const {
  const std::lock_guard lock(handle_->mutex);
  fresh = handle_->file == nullptr;
  if (fresh) {
    auto file = std::make_shared<const files::InputFile>(path_);
    if (file->size() != file_bytes_)
      throw StorageError("file system", "read " + path_,
                         fmt::format("it has {} bytes, and had {} when the run started, or has "
                                     "them on rank 0",
                                     file->size(), file_bytes_),
                         __FILE__, __LINE__);
    handle_->file = std::move(file);
  }
  return handle_->file;
}

void Segment::close() const {
  const std::lock_guard lock(handle_->mutex);
  handle_->file.reset();  // a thread that reads it now holds it until it is done
}

std::span<const std::byte> Segment::read_block_of(const files::InputFile& file,
                                                  std::int64_t block,
                                                  std::span<std::byte> room) const {
  const std::int64_t begin = block * block_bytes;
  const auto part = room.first(static_cast<std::size_t>(std::min(block_bytes, bytes() - begin)));
  file.read(offset_ + begin, part);
  return part;
}

std::span<const std::byte> Segment::read_block(std::int64_t block,
                                               std::span<std::byte> room) const {
  bool fresh = false;
  return read_block_of(*opened(fresh), block, room);
}

void Segment::check_block(const files::InputFile& file, std::int64_t block) const {
  auto& checked = checked_[static_cast<std::size_t>(block)];
  if (checked.load(std::memory_order_relaxed))
    return;
  Room room;
  if (hash_of(read_block_of(file, block, room)) != hashes_[static_cast<std::size_t>(block)])
    throw StorageError("data", "read " + path_,
                       fmt::format("bytes {} to {} do not match their hash: the file is damaged, "
                                   "was changed while it was in use, or differs from that of rank "
                                   "0. Start again to check the whole file",
                                   offset_ + block * block_bytes,
                                   offset_ + std::min(bytes(), (block + 1) * block_bytes)),
                       __FILE__, __LINE__);
  checked.store(true, std::memory_order_relaxed);
}

bool Segment::read(std::int64_t begin, std::span<std::byte> bytes) const {
  bool fresh = false;
  const Opened file = opened(fresh);
  if (!hashes_.empty() && !bytes.empty())
    for (std::int64_t block = begin / block_bytes; block * block_bytes < begin + std::ssize(bytes);
         ++block)
      check_block(*file, block);
  file->read(offset_ + begin, bytes);
  return fresh;
}

std::int64_t Segment::first_damaged() const {
  Room room;
  for (std::int64_t block = 0; block < std::ssize(hashes_); ++block)
    if (hash_of(read_block(block, room)) != hashes_[static_cast<std::size_t>(block)])
      return block;
  return -1;
}

}  // namespace trireme::tokens
