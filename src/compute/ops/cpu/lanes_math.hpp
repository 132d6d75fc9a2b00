// SPDX-License-Identifier: Apache-2.0
// Exponentials of sixteen numbers at a time. Included once per level (for_each_level.hpp).
//
// The bits depend only on the argument: no tables, and only the default rounding mode.

namespace trireme::ops::cpu::TRIREME_LEVEL {

/// As fast_exp (ops/cpu/loops.hpp): within 2 units in the last place, 0 below -87.3; NaN stays NaN.
TRIREME_PART inline Floats exponential(const Floats& x) {
  const Floats at = smaller(every(88.3F), x);
  const Floats n = nearest_integer(at * every(1.44269504F));
  Floats r = fused_from(n, every(0.693359375F), at);
  r = fused_from(n, every(-2.12194440e-4F), r);
  Floats p = every(1.0F / 5040.0F);
  p = fused(p, r, every(1.0F / 720.0F));
  p = fused(p, r, every(1.0F / 120.0F));
  p = fused(p, r, every(1.0F / 24.0F));
  p = fused(p, r, every(1.0F / 6.0F));
  p = fused(p, r, every(0.5F));
  p = fused(p, r, every(1.0F));
  p = fused(p, r, every(1.0F));
  return where_less(x, every(-87.3F), zeros(), scaled(p, n));
}

/// 2^x for |x| <= 1/2, within 2e-7, and 1 for 0. The polynomial is the minimax one of degree 5
/// among those that are 1 at 0.
TRIREME_PART inline Floats power_of_two_near_zero(const Floats& x) {
  Floats p = every(1.32647272e-3F);
  p = fused(p, x, every(9.67151281e-3F));
  p = fused(p, x, every(5.55073374e-2F));
  p = fused(p, x, every(2.40222421e-1F));
  p = fused(p, x, every(6.93146978e-1F));
  return fused(p, x, every(1.0F));
}

/// 2^x within 2e-7; NaN stays NaN. Requires: x is finite or NaN, and below 2^22.
TRIREME_PART inline Floats power_of_two(const Floats& x) {
  const Floats n = nearest_integer(x);
  return scaled(power_of_two_near_zero(x - n), n);
}

}  // namespace trireme::ops::cpu::TRIREME_LEVEL
