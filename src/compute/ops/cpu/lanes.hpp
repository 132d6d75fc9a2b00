// SPDX-License-Identifier: Apache-2.0
// Sixteen fp32 at a time as compiler vectors of TRIREME_LANES elements, for the levels below
// AVX-512, whose version has the same names (x86/avx512_lanes.hpp). Included once per level
// (for_each_level.hpp).
// 1. Lanes that a Mask leaves out are zero after a load, and are not written by a store; no byte of
//    theirs is touched.
// 2. Arithmetic is fp32. bf16 is rounded once, at the store, to nearest even; NaN stays NaN.
// 3. fused() and its relatives round once where the level has such instructions.
#if TRIREME_LANES < 16

namespace trireme::ops::cpu::TRIREME_LEVEL {

inline constexpr std::int64_t lanes = 16;

struct Floats {
  using Part = float __attribute__((vector_size(4 * TRIREME_LANES)));
  static constexpr int parts = 16 / TRIREME_LANES;
  Part part[parts];
};
using Words = std::uint32_t __attribute__((vector_size(4 * TRIREME_LANES)));
using HalfWords = std::uint16_t __attribute__((vector_size(2 * TRIREME_LANES)));
#define TRIREME_EACH_PART _Pragma("GCC unroll 4") for (int i = 0; i < Floats::parts; ++i)

/// The mask of the lowest `count` lanes.
struct Mask {
  std::int64_t count;
};
/// All for 16 and more, none below 1.
TRIREME_PART inline Mask first_lanes(std::int64_t count) {
  return {std::clamp<std::int64_t>(count, 0, lanes)};
}

TRIREME_PART inline Floats zeros() {
  return {};
}
TRIREME_PART inline Floats every(float x) {
  Floats all;
  TRIREME_EACH_PART all.part[i] = x - Floats::Part{};
  return all;
}
TRIREME_PART inline Floats operator+(Floats a, const Floats& b) {
  TRIREME_EACH_PART a.part[i] += b.part[i];
  return a;
}
TRIREME_PART inline Floats operator-(Floats a, const Floats& b) {
  TRIREME_EACH_PART a.part[i] -= b.part[i];
  return a;
}
TRIREME_PART inline Floats operator*(Floats a, const Floats& b) {
  TRIREME_EACH_PART a.part[i] *= b.part[i];
  return a;
}
TRIREME_PART inline Floats fused(const Floats& a, const Floats& b, Floats c) {
  TRIREME_EACH_PART c.part[i] = a.part[i] * b.part[i] + c.part[i];
  return c;
}
TRIREME_PART inline Floats fused_from(const Floats& a, const Floats& b, Floats c) {
  TRIREME_EACH_PART c.part[i] = c.part[i] - a.part[i] * b.part[i];
  return c;
}
TRIREME_PART inline Floats fused_minus(const Floats& a, const Floats& b, Floats c) {
  TRIREME_EACH_PART c.part[i] = a.part[i] * b.part[i] - c.part[i];
  return c;
}
/// `b` if either is NaN; the same for smaller().
TRIREME_PART inline Floats larger(Floats a, const Floats& b) {
  TRIREME_EACH_PART a.part[i] = a.part[i] > b.part[i] ? a.part[i] : b.part[i];
  return a;
}
TRIREME_PART inline Floats smaller(Floats a, const Floats& b) {
  TRIREME_EACH_PART a.part[i] = a.part[i] < b.part[i] ? a.part[i] : b.part[i];
  return a;
}
/// `yes` where a < b, else `no`, also for NaN.
TRIREME_PART inline Floats where_less(const Floats& a,
                                      const Floats& b,
                                      const Floats& yes,
                                      Floats no) {
  TRIREME_EACH_PART no.part[i] = a.part[i] < b.part[i] ? yes.part[i] : no.part[i];
  return no;
}
TRIREME_PART inline Floats where(Mask keep, const Floats& yes, Floats no) {
  alignas(64) static constexpr std::uint32_t numbers[] = {0, 1, 2,  3,  4,  5,  6,  7,
                                                          8, 9, 10, 11, 12, 13, 14, 15};
  if (keep.count == lanes)
    return yes;
  TRIREME_EACH_PART {
    Words number;
    std::memcpy(&number, numbers + i * TRIREME_LANES, sizeof number);
    no.part[i] = number < static_cast<std::uint32_t>(keep.count) ? yes.part[i] : no.part[i];
  }
  return no;
}

/// To the nearest integer. Requires: below 2^22.
TRIREME_PART inline Floats nearest_integer(Floats x) {
  constexpr float rounder = 0x1.8p23F;  // adding it leaves the rounded integer in the low bits
  TRIREME_EACH_PART x.part[i] = (x.part[i] + rounder) - rounder;
  return x;
}
/// x · 2^n for integers n up to 127; 0 below 2^-126.
TRIREME_PART inline Floats scaled(Floats x, const Floats& n) {
  constexpr float rounder = 0x1.8p23F + 127.0F;
  const Floats limited = larger(n, every(-127.0F));
  TRIREME_EACH_PART x.part[i] *= (Floats::Part)((Words)(limited.part[i] + rounder) << 23U);
  return x;
}
TRIREME_PART inline Floats reciprocal(Floats x) {
  TRIREME_EACH_PART x.part[i] = 1.0F / x.part[i];
  return x;
}

TRIREME_PART inline Floats load_floats(const float* from) {
  Floats all;
  TRIREME_EACH_PART std::memcpy(&all.part[i], from + i * TRIREME_LANES, sizeof all.part[i]);
  return all;
}
TRIREME_PART inline Floats load_floats(const Bf16* from) {
  Floats all;
  TRIREME_EACH_PART {
    HalfWords narrow;
    std::memcpy(&narrow, from + i * TRIREME_LANES, sizeof narrow);
    all.part[i] = (Floats::Part)(__builtin_convertvector(narrow, Words) << 16U);
  }
  return all;
}
template <class T>
TRIREME_PART inline Floats load_floats(const T* from, Mask keep) {
  if (keep.count == lanes)
    return load_floats(from);
  float line[lanes] = {};
  for (std::int64_t i = 0; i < keep.count; ++i) line[i] = to_float(from[i]);
  return load_floats(line);
}
TRIREME_PART inline void store_floats(float* to, const Floats& v) {
  TRIREME_EACH_PART std::memcpy(to + i * TRIREME_LANES, &v.part[i], sizeof v.part[i]);
}
TRIREME_PART inline void store_floats(Bf16* to, const Floats& v) {
  TRIREME_EACH_PART {
    const auto raw = (Words)v.part[i];
    const Words rounded = (raw + 0x7fffU + ((raw >> 16U) & 1U)) >> 16U,
                quiet = (raw >> 16U) | 0x40U;
    const auto narrow =
        __builtin_convertvector((raw & 0x7fffffffU) > 0x7f800000U ? quiet : rounded, HalfWords);
    std::memcpy(static_cast<void*>(to + i * TRIREME_LANES), &narrow, sizeof narrow);
  }
}
template <class T>
TRIREME_PART inline void store_floats(T* to, const Floats& v, Mask keep) {
  if (keep.count == lanes)
    return store_floats(to, v);
  float line[lanes];
  store_floats(line, v);
  for (std::int64_t i = 0; i < keep.count; ++i) to[i] = from_float<T>(line[i]);
}
template <class T>
TRIREME_PART inline void store_pair(T* to, const Floats& low, const Floats& high) {
  store_floats(to, low);
  store_floats(to + lanes, high);
}

/// The lanes' sum: halves are added until one number is left.
TRIREME_PART inline float sum_of_lanes(const Floats& v) {
  float line[lanes];
  store_floats(line, v);
  for (std::int64_t half = lanes / 2; half > 0; half /= 2)
    for (std::int64_t i = 0; i < half; ++i) line[i] += line[half + i];
  return line[0];
}
TRIREME_PART inline float largest_lane(const Floats& v) {
  float line[lanes];
  store_floats(line, v);
  for (std::int64_t half = lanes / 2; half > 0; half /= 2)
    for (std::int64_t i = 0; i < half; ++i)
      line[i] = line[i] > line[half + i] ? line[i] : line[half + i];
  return line[0];
}
TRIREME_PART inline float first_lane(const Floats& v) {
  return v.part[0][0];
}

}  // namespace trireme::ops::cpu::TRIREME_LEVEL

#undef TRIREME_EACH_PART
#endif
