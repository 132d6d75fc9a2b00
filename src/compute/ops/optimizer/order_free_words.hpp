// SPDX-License-Identifier: Apache-2.0
// The integers of an order-free sum (order_free_sum.hpp): layout, carry and value. Shared by host
// and GPU, so that both give the same bits.
//
// A double is an integer multiple of 2^-1074 with at most 53 significant bits, so it is within
// three bins of 32 bits, and adding it is three integer additions. Integer addition is associative:
// the sum does not depend on the order, on threads or on ranks.
// 1. A word grows by less than 2^32 with each term, and has 63 bits: 2^31 terms may be added
//    between two calls of carry_words().
// 2. Words of several ranks are added as 64-bit integers, once carry_words() has made room in each.
// 3. The value is rounded once, to nearest even, subnormal results included. NaN, or infinities of
//    both signs, give NaN; infinities of one sign give that infinity.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "base/host_device.hpp"

namespace trireme::ops {

/// Bin i counts multiples of 2^(32 i - 1074). Exponents -1074 … 1023 in steps of 32 bits, and two
/// words of head room.
inline constexpr int bin_bits = 32;
inline constexpr int lowest_exponent = -1074;
inline constexpr int num_bins = 68;
/// After the bins three counters: of NaN, +inf and -inf.
inline constexpr int nan_word = num_bins, plus_word = nan_word + 1, minus_word = nan_word + 2;
inline constexpr int num_words = num_bins + 3;

/// Bins into [0, 2^32), except the last, which carries the sign.
TRIREME_HOST_DEVICE inline void carry_words(std::int64_t* words) {
  for (int i = 0; i + 1 < num_bins; ++i) {
    words[i + 1] += words[i] >> bin_bits;  // arithmetic shift: towards minus infinity
    words[i] &= 0xffffffff;
  }
}

TRIREME_HOST_DEVICE inline int bit_width(unsigned __int128 value) {
  int width = 0;
  for (; value != 0; value >>= 1U) ++width;
  return width;
}

TRIREME_HOST_DEVICE inline double value_of_words(const std::int64_t* from) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  if (from[nan_word] != 0 || (from[plus_word] != 0 && from[minus_word] != 0))
    return std::numeric_limits<double>::quiet_NaN();
  if (from[plus_word] != 0)
    return infinity;
  if (from[minus_word] != 0)
    return -infinity;

  // Bin by bin as carry_words() would leave them, of the sum's magnitude.
  std::int64_t carry = 0;
  for (int i = 0; i + 1 < num_bins; ++i) carry = (from[i] + carry) >> bin_bits;
  const bool negative = from[num_bins - 1] + carry < 0;
  // The highest bin and the two below it hold at least 65 bits; what is lower only breaks ties.
  unsigned __int128 head = 0;
  int top = -1;
  bool lower = false, before_these = false;
  std::uint64_t one_below = 0, two_below = 0;
  carry = 0;
  for (int i = 0; i < num_bins; ++i) {
    const std::int64_t word = (negative ? -from[i] : from[i]) + carry;
    const auto bin = static_cast<std::uint64_t>(i + 1 < num_bins ? word & 0xffffffff : word);
    carry = word >> bin_bits;
    if (bin != 0) {
      top = i;
      head =
          (((static_cast<unsigned __int128>(bin) << bin_bits) | one_below) << bin_bits) | two_below;
      lower = before_these;
    }
    before_these = before_these || two_below != 0;
    two_below = one_below;
    one_below = bin;
  }
  if (top < 0)
    return 0;

  int exponent = lowest_exponent + bin_bits * (top - 2);
  // 53 bits are kept, and fewer where the result is subnormal.
  const int too_many = bit_width(head) - 53, too_low = lowest_exponent - exponent;
  if (const int drop = too_many > too_low ? too_many : too_low; drop > 0) {
    const auto half = static_cast<unsigned __int128>(1) << static_cast<unsigned>(drop - 1);
    const auto rest = head & ((half << 1U) - 1);
    head >>= static_cast<unsigned>(drop);
    exponent += drop;
    if (rest > half || (rest == half && (lower || (head & 1U) != 0)))
      ++head;
  }
  const double magnitude =
      std::ldexp(static_cast<double>(static_cast<std::uint64_t>(head)), exponent);
  return negative ? -magnitude : magnitude;
}

}  // namespace trireme::ops
