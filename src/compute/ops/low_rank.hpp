// SPDX-License-Identifier: Apache-2.0
// Operations, in addition to matrix products, for approximating a matrix by a product of two narrow
// ones (reduce/power_sgd.hpp).
#pragma once

#include <bit>
#include <cstdint>

#include "base/hash.hpp"
#include "base/host_device.hpp"

#include "ops/operation.hpp"

namespace trireme::ops {

/// Makes the rows orthonormal, first to last, by the modified Gram-Schmidt process, twice per row,
/// so that rounding does not leave them oblique. A row that depends on earlier ones, is not finite,
/// or is shorter than 2.9e-39 is replaced by replacement_element()s first, so the result is always
/// finite. Sums are fp64 in a fixed order.
struct Orthonormalize {
  static constexpr const char* name = "orthonormalize";
  View rows;           ///< [count, length] fp32, length > count
  std::int64_t count;  ///< at least 1
};
TRIREME_OPERATION(Orthonormalize);

/// rest -= term; results that are not finite become 0.
struct SubtractFinite {
  static constexpr const char* name = "subtract_finite";
  View rest;       ///< [n] fp32
  ConstView term;  ///< [n] fp32
};
TRIREME_OPERATION(SubtractFinite);

/// 1 or -1: pseudo-random, but the same on every rank and device.
TRIREME_HOST_DEVICE constexpr float replacement_element(std::int64_t row, std::int64_t column) {
  const std::uint64_t bits =
      element_hash(static_cast<std::uint64_t>(row), static_cast<std::uint64_t>(column));
  return (bits & 1U) != 0 ? 1.0F : -1.0F;
}

TRIREME_HOST_DEVICE constexpr float finite_rest(float value, float term) {
  const float rest = value - term;
  const bool is_finite = (std::bit_cast<std::uint32_t>(rest) & 0x7f800000U) != 0x7f800000U;
  return is_finite ? rest : 0.0F;
}

/// Fraction of its length that a row must keep when its projections on earlier rows are subtracted.
/// A smaller rest is mostly rounding errors.
inline constexpr double least_rest = 1e-6;

}  // namespace trireme::ops
