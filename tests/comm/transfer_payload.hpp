// SPDX-License-Identifier: Apache-2.0
// The messages of the tests of transfers: different sizes between every pair of ranks.
#pragma once

#include <cstdint>
#include <vector>

namespace trireme::comm {

/// Sizes, in elements, of the messages from rank `from` to rank `to`: two, one or none.
inline std::vector<std::int64_t> sizes(int from, int to) {
  if ((from + 2 * to) % 5 == 3)
    return {};
  if ((from + to) % 3 == 0)
    return {100 * from + 7 * to + 1};
  return {10'000 * (from + 1) + to, from + 3 * to + 1};
}

inline float value(int from, int to, std::size_t message, std::int64_t element, int round) {
  return static_cast<float>((from * 64 + to) * 8 + static_cast<int>(message) * 4 + round) +
         static_cast<float>(element % 1000) / 1024.0F;
}

}  // namespace trireme::comm
