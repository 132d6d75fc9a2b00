// SPDX-License-Identifier: Apache-2.0
// Integer division that rounds up, for sizes in blocks, granules and lines of memory.
#pragma once

#include <cstdint>

namespace trireme {

/// Number of parts of size `part` that hold `count`. Requires: count >= 0, part > 0.
constexpr std::int64_t divided_up(std::int64_t count, std::int64_t part) {
  return (count + part - 1) / part;
}

/// The smallest multiple of `multiple` >= `count`. Requires: count >= 0, multiple > 0.
constexpr std::int64_t rounded_up(std::int64_t count, std::int64_t multiple) {
  return divided_up(count, multiple) * multiple;
}

/// Rounds a number of fp32 elements up to whole cache lines of 64 bytes.
constexpr std::int64_t whole_lines(std::int64_t elements) {
  return rounded_up(elements, 16);
}

}  // namespace trireme
