// SPDX-License-Identifier: Apache-2.0
// Text files as blocks that are counted one by one (count_texts.hpp): the texts that
// `tokenize` reads, through the same reader.
//
//     TextFileBlocks blocks(files, format);
//     blocks.read(i, use);          // any block, on any thread of any rank that has the same files
//
// A large plain file, and one of JSON lines, is cut into blocks where `tokenize` may cut it
// (tokens/documents.hpp); a compressed one is a single block, read from front to back.
//
// 1. A block depends on the files and `block_bytes` alone, and no piece reaches from one into
//    another: counts do not depend on block_bytes.
// 2. A file whose size has changed since it was listed is an error, never a shorter text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tokens/sources.hpp"
#include "tokens/text_format.hpp"

namespace trireme::corpus {

class TextFileBlocks {
 public:
  /// Opens nothing.
  TextFileBlocks(std::vector<tokens::TextFile> files,
                 tokens::TextFormat format,
                 std::int64_t block_bytes = std::int64_t{4} << 20U);

  [[nodiscard]] std::size_t size() const { return blocks_.size(); }
  /// Of what is read for the block, for progress.
  [[nodiscard]] std::int64_t bytes(std::size_t block) const;
  /// Calls `use` with the texts of the block, one after the other, the same ones in every pass.
  /// Throws UserError for damaged compression and for what is not a JSON line with the field,
  /// StorageError.
  void read(std::size_t block, const std::function<void(std::string_view)>& use) const;

 private:
  struct Block {
    std::size_t file;
    std::int64_t begin, end;  ///< end -1: to the end of the file
  };

  const std::vector<tokens::TextFile> files_;
  const tokens::TextFormat format_;
  std::vector<Block> blocks_;
};

}  // namespace trireme::corpus
