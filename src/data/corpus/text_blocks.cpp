// SPDX-License-Identifier: Apache-2.0
#include "corpus/text_blocks.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/error.hpp"
#include "files/input_file.hpp"

#include "tokens/documents.hpp"

namespace trireme::corpus {
namespace {

void expect_size(const tokens::TextFile& file) {
  if (const files::InputFile now(file.path); now.size() != file.size)
    throw StorageError("file system", "read " + file.path,
                       fmt::format("it has {} bytes and had {} when it was listed: it was changed "
                                   "while it was in use",
                                   now.size(), file.size),
                       __FILE__, __LINE__);
}

}  // namespace

TextFileBlocks::TextFileBlocks(std::vector<tokens::TextFile> files,
                               tokens::TextFormat format,
                               std::int64_t block_bytes)
    : files_(std::move(files)), format_(std::move(format)) {
  TRIREME_EXPECT(block_bytes > 0, "blocks of {} bytes", block_bytes);
  for (std::size_t f = 0; f < files_.size(); ++f) {
    if (files_[f].compressed) {
      blocks_.push_back({f, 0, -1});
      continue;
    }
    for (std::int64_t begin = 0; begin < files_[f].size; begin += block_bytes)
      blocks_.push_back({f, begin, std::min(begin + block_bytes, files_[f].size)});
  }
}

std::int64_t TextFileBlocks::bytes(std::size_t block) const {
  const Block& one = blocks_.at(block);
  return (one.end < 0 ? files_[one.file].size : one.end) - one.begin;
}

void TextFileBlocks::read(std::size_t block,
                          const std::function<void(std::string_view)>& use) const {
  const Block& one = blocks_.at(block);
  const tokens::TextFile& file = files_[one.file];
  expect_size(file);
  std::int64_t begin = 0, end = -1;
  if (one.end >= 0) {
    begin = tokens::boundary(file.path, format_, one.begin);
    end = tokens::boundary(file.path, format_, one.end);
    if (begin == end)
      return;  // what is here belongs to an earlier block
  }
  tokens::Documents documents(file.path, format_, begin, end);
  for (tokens::TextPiece piece; documents.next(piece);) use(piece.text);
}

}  // namespace trireme::corpus
