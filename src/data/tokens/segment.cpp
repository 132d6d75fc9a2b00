// SPDX-License-Identifier: Apache-2.0
#include "tokens/segment.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "base/error.hpp"

#include "tokens/token_index.hpp"

namespace trireme::tokens {
std::uint64_t hash_of_blocks(std::span<const std::uint64_t> hashes, std::int64_t bytes) {
  return hash_bytes({reinterpret_cast<const char*>(hashes.data()), hashes.size_bytes()},
                    static_cast<std::uint64_t>(bytes));
}

Segment::Segment(TokenFile file) : file_(std::move(file)) {
  TRIREME_EXPECT(std::has_single_bit(static_cast<unsigned>(file_.width)) && file_.width <= 8,
                 "tokens of {} bytes", file_.width);
  TRIREME_EXPECT(
      file_.tokens >= 0 && file_.offset >= 0 && file_.offset + bytes() <= file_.file_bytes,
      "{} tokens of {} bytes from byte {} in {}", file_.tokens, file_.width, file_.offset,
      file_.path);
}

Segment::Opened Segment::opened(bool& fresh) const {
  const std::lock_guard lock(handle_->mutex);
  Opened& opened = handle_->opened;
  fresh = opened.file == nullptr;
  if (fresh) {
    auto file = std::make_shared<const files::InputFile>(file_.path);
    if (file->size() != file_.file_bytes)
      throw StorageError("file system", "read " + file_.path,
                         fmt::format("it has {} bytes, and had {} when the run started, or has "
                                     "them on rank 0",
                                     file->size(), file_.file_bytes));
    if (!file_.index.empty() && opened.hashes == nullptr) {
      auto blocks = read_block_hashes(file_);
      auto checked = std::make_unique<std::atomic<bool>[]>(blocks.size());
      opened.hashes = std::make_shared<const Hashes>(Hashes{std::move(blocks), std::move(checked)});
    }
    opened.file = std::move(file);
  }
  return opened;
}

void Segment::close() const {
  const std::lock_guard lock(handle_->mutex);
  handle_->opened.file.reset();  // a thread that reads it now holds it until it is done
}

std::span<const std::byte> Segment::read_block_of(const files::InputFile& file,
                                                  std::int64_t block,
                                                  std::span<std::byte> room) const {
  const std::int64_t begin = block * block_bytes;
  const auto part = room.first(static_cast<std::size_t>(std::min(block_bytes, bytes() - begin)));
  file.read(file_.offset + begin, part);
  return part;
}

std::span<const std::byte> Segment::read_block(std::int64_t block,
                                               std::span<std::byte> room) const {
  bool fresh = false;
  return read_block_of(*opened(fresh).file, block, room);
}

void Segment::check_block(const Opened& opened, std::int64_t block) const {
  auto& checked = opened.hashes->checked[static_cast<std::size_t>(block)];
  if (checked.load(std::memory_order_relaxed))
    return;
  std::array<std::byte, static_cast<std::size_t>(block_bytes)> room;
  if (hash_of(read_block_of(*opened.file, block, room)) !=
      opened.hashes->blocks[static_cast<std::size_t>(block)])
    throw StorageError(
        "data", "read " + file_.path,
        fmt::format("bytes {} to {} do not match their hash in {}: the file is damaged, was "
                    "changed while it was in use, or differs from that of rank 0. Restore it, or "
                    "remove it if it is a cache of text; if it was changed on purpose, remove the "
                    "index. Then start again",
                    file_.offset + block * block_bytes,
                    file_.offset + std::min(bytes(), (block + 1) * block_bytes), file_.index));
  checked.store(true, std::memory_order_relaxed);
}

bool Segment::read(std::int64_t begin, std::span<std::byte> bytes) const {
  bool fresh = false;
  const Opened file = opened(fresh);
  if (file.hashes != nullptr && !bytes.empty())
    for (std::int64_t block = begin / block_bytes; block * block_bytes < begin + std::ssize(bytes);
         ++block)
      check_block(file, block);
  file.file->read(file_.offset + begin, bytes);
  return fresh;
}

}  // namespace trireme::tokens
