// SPDX-License-Identifier: Apache-2.0
// Pairwise sums: the sum of n terms is the sum of the first half, which has one more term if n is
// odd, plus the sum of the second half.
//
// If each term is itself the sum of an equal part of the leaves, then the same additions are made
// for any number of terms. For example, with 8 leaves:
//
//   4 terms   ((01) + (23)) + ((45) + (67))       3 terms   ((01) + (23)) + (4567)
//
// where (…) is the pairwise sum of the leaves in one term.
#pragma once

#include <cstdint>

#include "base/error.hpp"

namespace trireme {

template <class Count>
constexpr Count first_half(Count count) {
  return (count + 1) / 2;
}

struct LeafRange {
  std::int64_t begin = 0, count = 0;
};

/// The leaves in term `term` of `terms`: a whole subtree. Requires: `leaves` is a power of two and
/// not below `terms` rounded up to one.
constexpr LeafRange leaves_of_term(std::int64_t leaves, std::int64_t term, std::int64_t terms) {
  LeafRange range{0, leaves};
  while (terms > 1) {
    TRIREME_EXPECT(range.count % 2 == 0, "{} leaves for {} terms", range.count, terms);
    const std::int64_t left = first_half(terms);
    range.count /= 2;
    if (term < left) {
      terms = left;
    } else {
      term -= left;
      terms -= left;
      range.begin += range.count;
    }
  }
  return range;
}

}  // namespace trireme
