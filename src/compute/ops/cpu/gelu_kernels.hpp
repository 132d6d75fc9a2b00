// SPDX-License-Identifier: Apache-2.0
// GELU sixteen numbers at a time. Included once per level (for_each_level.hpp).
//
// tanh(u) = 2 sigmoid(2u) - 1, so 0.5 x (1 + tanh(u)) = x sigmoid(2u) with u = sqrt(2/pi) (x +
// 0.044715 x^3).

namespace trireme::ops::cpu::TRIREME_LEVEL {
namespace {

constexpr float two_slope = 1.59576912161F;  // 2 sqrt(2/pi)
constexpr float cubic = 0.044715F;

/// e^(-2u): sigmoid(2u) is 1 / (1 + it). A power of two, whose exponent is limited so that the
/// result stays finite; beyond the limit the gate no longer changes.
TRIREME_PART inline Floats gate_exponential(const Floats& x) {
  constexpr float log2_e = 1.44269504F;
  const Floats factor =
      fused(every(-two_slope * cubic * log2_e), x * x, every(-two_slope * log2_e));
  const Floats exponent = larger(every(-126.0F), x * factor);
  return power_of_two(smaller(every(126.0F), exponent));  // keeps NaN
}

TRIREME_PART inline Floats gelu(const Floats& x) {
  return x * reciprocal(every(1.0F) + gate_exponential(x));
}

TRIREME_PART inline Floats gelu_derivative(const Floats& x) {
  const Floats squared = x * x;
  const Floats e = gate_exponential(x);
  const Floats s = reciprocal(every(1.0F) + e);
  const Floats slope = fused(every(3.0F * cubic * two_slope), squared, every(two_slope));
  // s(1 - s) = e s s. Far from zero it vanishes before the slope can overflow against it.
  const Floats bend = (x * (e * s)) * (s * slope);
  return s + where_less(squared, every(1.0e3F), bend, zeros());
}

/// to[i] = at(i) for all i, four vectors of sixteen at a time, to overlap their long chains.
template <class T, class At>
TRIREME_PART inline void for_lanes(T* to, std::int64_t count, const At& at) {
  constexpr std::int64_t at_once = 4 * lanes;
  std::int64_t i = 0;
  for (; i + at_once <= count; i += at_once) {
    Floats made[4];
#pragma GCC unroll 4
    for (std::int64_t r = 0; r < 4; ++r) made[r] = at(i + r * lanes, first_lanes(lanes));
    store_pair(to + i, made[0], made[1]);
    store_pair(to + i + 2 * lanes, made[2], made[3]);
  }
  for (; i < count; i += lanes) {
    const Mask keep = first_lanes(count - i);
    store_floats(to + i, at(i, keep), keep);
  }
}

template <class T>
TRIREME_KERNEL void gelu_forward(T* y, const T* x, std::int64_t count) {
  for_lanes(y, count,
            [&](std::int64_t i, Mask keep) TRIREME_PART { return gelu(load_floats(x + i, keep)); });
}

template <class T>
TRIREME_KERNEL void gelu_backward(T* dx, const T* dy, const T* x, std::int64_t count) {
  for_lanes(dx, count, [&](std::int64_t i, Mask keep) TRIREME_PART {
    return load_floats(dy + i, keep) * gelu_derivative(load_floats(x + i, keep));
  });
}

}  // namespace
}  // namespace trireme::ops::cpu::TRIREME_LEVEL
