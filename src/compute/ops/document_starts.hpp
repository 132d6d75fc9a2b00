// SPDX-License-Identifier: Apache-2.0
// Where the document begins that a position belongs to, for attention that stays inside of
// documents: the first key that a query may see. A token of its own begins each document, the end
// of the text before; what is before the first one in a row is the rest of a document that begins
// before the row.
//
//   starts[b, t] = the last position u <= t with tokens[b, u] = token, or 0 where there is none
//
// 1. starts[b, t] <= t, and along a row they never fall: attention relies on both.
#pragma once

#include <cstdint>

#include "ops/operation.hpp"

namespace trireme::ops {

struct DocumentStarts {
  static constexpr const char* name = "document_starts";
  View starts;        ///< [batch, time] int32
  ConstView tokens;   ///< [batch, time] int32
  std::int64_t time;  ///< positions of a row
  std::int32_t token;
};
TRIREME_OPERATION(DocumentStarts);

}  // namespace trireme::ops
