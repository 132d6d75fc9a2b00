// SPDX-License-Identifier: Apache-2.0
// A set of byte ranges that counts each byte once, although ranges may overlap: buckets that share
// memory are read from the same pages.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>

namespace trireme::comm {

class ByteRangeSet {
 public:
  /// Adds [begin, begin + bytes). Returns the number of its bytes that were not in the set.
  std::size_t add(const std::byte* begin, std::size_t bytes) {
    const std::byte* end = begin + bytes;
    auto next = ends_.upper_bound(begin);
    if (next != ends_.begin() && std::prev(next)->second >= begin)
      --next;
    std::size_t known = 0;
    while (next != ends_.end() && next->first <= end) {
      known += static_cast<std::size_t>(next->second - next->first);
      begin = std::min(begin, next->first);
      end = std::max(end, next->second);
      next = ends_.erase(next);
    }
    ends_.emplace(begin, end);
    return static_cast<std::size_t>(end - begin) - known;
  }

 private:
  std::map<const std::byte*, const std::byte*> ends_;  // of disjoint ranges, by their start
};

}  // namespace trireme::comm
