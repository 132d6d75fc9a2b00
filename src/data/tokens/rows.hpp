// SPDX-License-Identifier: Apache-2.0
// Where the rows of `data.rows: documents` begin. A row is context + 1 tokens.
//
// 1. A row begins with a document. If that is longer than the row, the next row continues it.
// 2. The last row of a document is filled with the documents that follow, and the next row begins
//    with the first document after that row. Rows share at most one token.
// 3. So every long document is used completely. Of the others, the tokens between the end of a row
//    and the next document are left out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace trireme::tokens {

/// The starts of all rows that end within the first `tokens`. `documents`: where documents begin, in
/// increasing order.
inline std::vector<std::int64_t> row_starts(std::span<const std::int64_t> documents,
                                            std::int64_t context,
                                            std::int64_t tokens) {
  std::vector<std::int64_t> starts;
  for (std::size_t i = 0; i < documents.size(); ++i) {
    std::int64_t at = documents[i];
    if (!starts.empty() && at < starts.back() + context)
      continue;
    const std::int64_t end = i + 1 < documents.size() ? documents[i + 1] : tokens;
    do {
      starts.push_back(at);
      at += context;
    } while (at + 1 < end);
  }
  while (!starts.empty() && starts.back() + context >= tokens) starts.pop_back();
  return starts;
}

}  // namespace trireme::tokens
