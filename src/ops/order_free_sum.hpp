// SPDX-License-Identifier: Apache-2.0
// A sum whose bits depend on the set of terms only: not on their order, not on who added which, not
// on how the sums of parts were merged. Gradient norm and loss are such sums, so sharded and
// unsharded runs, any padding and any rank count agree to the bit.
//
// Terms are fp64. The accumulator keeps them exactly, in integer bins that each cover 32 bits of
// exponent range, so adding and merging are integer additions; value() rounds once. Squares of fp32
// values are exact in fp64 (24 + 24 <= 53 bits). Source: the long accumulator of Kulisch ("Computer
// arithmetic and validity", 2008), with 64-bit bins that keep 32 spare bits for carries as in Neal,
// arXiv 1505.05571.
//
// 1. NaN and infinities are counted, not binned; value() is NaN or infinite accordingly.
// 2. A plain array of 64-bit integers, so that ranks merge with an integer sum (World::sum).
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "base/view.hpp"

#include "device/device.hpp"

namespace trireme::ops {

class OrderFreeSum {
 public:
  /// Exponents -1074 … 1023 in steps of 32 bits, two words of head room, and three counters (NaN,
  /// +inf, -inf).
  static constexpr std::size_t num_bins = 68;
  static constexpr std::size_t num_words = num_bins + 3;

  void add(double term);
  void merge(const OrderFreeSum& other);
  /// The exact sum, rounded to nearest even.
  [[nodiscard]] double value() const;

  /// The accumulator as integers, for World::sum. Call normalize() before, so that `ranks`
  /// additions cannot overflow.
  [[nodiscard]] std::span<std::int64_t> words() { return words_; }
  void normalize();

 private:
  std::array<std::int64_t, num_words> words_{};
  std::int64_t pending_ = 0;  // additions since the last normalize
};

/// Adds the squares of `values` (fp32) to `sum`. Host-synchronous on the CPU's inline streams; the
/// stream must be drained before `sum` is read.
void add_squares(OrderFreeSum& sum, ConstView values, device::Stream& stream);
/// Adds `values` (fp32) to `sum`, likewise.
void add_values(OrderFreeSum& sum, ConstView values, device::Stream& stream);

}  // namespace trireme::ops
