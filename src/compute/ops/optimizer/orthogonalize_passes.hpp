// SPDX-License-Identifier: Apache-2.0
// What orthogonalize.hpp does between its products, which are of type T.
#pragma once

#include <cstdint>

#include "ops/operation.hpp"

namespace trireme::ops {

inline constexpr std::int64_t elements_per_sum = 16384;

/// a I + b A + c A A.
struct Polynomial {
  float a = 0, b = 0, c = 0;
};

/// x = matrix / (factor · |matrix| + guard).
struct Normalize {
  static constexpr const char* name = "normalize";
  View x;            ///< [n] of T; may be matrix
  ConstView matrix;  ///< [n] fp32
  View sums;         ///< scratch: a double per elements_per_sum elements
  double factor, guard;
};
TRIREME_BODIES(Normalize);

/// `squared` holds gram · gram and becomes the polynomial of gram.
struct Combine {
  static constexpr const char* name = "combine";
  View squared;    ///< [n, n] of T
  ConstView gram;  ///< [n, n] of T
  std::int64_t n;
  Polynomial numbers;
};
TRIREME_BODIES(Combine);

}  // namespace trireme::ops
