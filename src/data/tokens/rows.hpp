// SPDX-License-Identifier: Apache-2.0
// Where the rows of `data.rows: documents` begin. A row is context + 1 tokens.
//
// 1. A row begins with a document. If the document is longer than the row, the next row continues
//    it.
// 2. The last row of a document is filled with the documents that follow, and the next row begins
//    with the first document after that row. Rows share at most one token.
// 3. So every long document is used completely. Of the others, the tokens between the end of a row
//    and the next document are left out.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace trireme::tokens {

/// Takes the beginnings of documents in increasing order.
class RowStarts {
 public:
  explicit RowStarts(std::int64_t context) : context_(context) {}

  void document(std::int64_t begin) {
    if (begin_ >= 0)
      cut(begin);
    begin_ = begin;
  }
  /// The starts of all rows that end within the first `tokens`.
  std::vector<std::int64_t> finish(std::int64_t tokens) {
    if (begin_ >= 0)
      cut(tokens);
    while (!starts_.empty() && starts_.back() + context_ >= tokens) starts_.pop_back();
    return std::move(starts_);
  }

 private:
  /// The rows of the document [begin_, end).
  void cut(std::int64_t end) {
    if (begin_ < free_)
      return;
    for (std::int64_t at = begin_; at == begin_ || at + 1 < end; at += context_) {
      starts_.push_back(at);
      free_ = at + context_;
    }
  }

  std::int64_t context_, begin_ = -1, free_ = 0;
  std::vector<std::int64_t> starts_;
};

}  // namespace trireme::tokens
