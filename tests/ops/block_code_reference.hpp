// SPDX-License-Identifier: Apache-2.0
// The codes of ops/block_codes.hpp in double precision, by searching the list of all values.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

#include "ops/block_codes.hpp"

namespace trireme::test {

using Values = std::vector<double>;
using ops::block_elements, ops::BlockCode;

/// The magnitudes that have a code, in ascending order; the index gives the parity of the code.
inline Values magnitudes(BlockCode code) {
  Values all;
  for (int i = 0; i < 127 + (code == BlockCode::int8 ? 1 : 0); ++i)
    all.push_back(code == BlockCode::int8 ? i
                  : i < 8                 ? std::ldexp(i, -9)
                                          : std::ldexp(8 + i % 8, i / 8 - 10));
  return all;
}

/// The nearest value with a code; of two equally near, the even one.
inline double nearest(const Values& known, double value) {
  const double size = std::abs(value);
  const auto above =
      static_cast<std::size_t>(std::ranges::lower_bound(known, size) - known.begin());
  if (above == 0)
    return 0;
  const double up = known[above] - size, down = size - known[above - 1];
  return std::copysign(known[up < down || (up == down && above % 2 == 0) ? above : above - 1],
                       value);
}

/// The `kept` largest magnitudes of each block, cut to 18 significant bits; others are 0.
inline Values largest_of(int kept, const Values& values) {
  Values all(values.size());
  for (std::size_t begin = 0; begin < values.size(); begin += block_elements) {
    std::vector<std::pair<double, std::size_t>> cut;  // by magnitude, then by place
    for (std::size_t i = begin; i < std::min(begin + block_elements, values.size()); ++i) {
      const int exponent = values[i] == 0 ? 0 : std::max(std::ilogb(values[i]), -126) - 17;
      cut.emplace_back(
          -std::abs(std::ldexp(std::trunc(std::ldexp(values[i], -exponent)), exponent)), i);
    }
    std::ranges::sort(cut);
    for (std::size_t k = 0; k < std::min(static_cast<std::size_t>(kept), cut.size()); ++k)
      all[cut[k].second] = std::copysign(cut[k].first, values[cut[k].second]);
  }
  return all;
}

/// The values decoded from their codes, block by block; the last block may be shorter.
inline Values decoded(BlockCode code, const Values& values) {
  if (const int kept = ops::kept_values(code); kept < block_elements)
    return largest_of(kept, values);
  const Values known = magnitudes(code);
  Values all;
  for (std::size_t begin = 0; begin < values.size(); begin += block_elements) {
    double largest = 0, scale = std::ldexp(1, -126);
    for (std::size_t i = begin; i < std::min(begin + block_elements, values.size()); ++i)
      largest = std::max(largest, std::abs(values[i]));
    while (known.back() * scale < largest) scale *= 2;
    for (std::size_t i = begin; i < std::min(begin + block_elements, values.size()); ++i)
      all.push_back(nearest(known, values[i] / scale) * scale);
  }
  return all;
}

}  // namespace trireme::test
