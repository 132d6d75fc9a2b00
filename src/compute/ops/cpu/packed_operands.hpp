// SPDX-License-Identifier: Apache-2.0
// The arguments of the CPU's product kernels: operands in the order in which register blocks read
// them, and the destination of sums.
//
// A *unit* is 32 bits along K: one fp32, two consecutive bf16 (a last one without a second is
// paired with 0), or one bf16 widened to fp32 (Units). So all types have the same layouts and one
// product instruction per unit.
//
//   panel of B   [units][panel columns]
//   panel of A   [units][panel rows]; only of a transposed A, else A is read where it is or from
//                a copy of its rows, widened where its units are
// 1. An element's sum runs over K in order, so kernels that fuse multiplication and addition give
//    the same bits on all processors. The division of K into blocks, whose sums are added, changes
//    bits as well (packed_matmul.hpp); rows, columns and threads do not.
#pragma once

#include <cstddef>
#include <cstdint>

namespace trireme::ops::cpu {

using Unit = std::uint32_t;

/// The type of a matrix in memory and of a unit of its panels.
enum class Units {
  single,   ///< fp32; a unit is one
  pairs,    ///< bf16; a unit is two
  widened,  ///< bf16; a unit is one, as fp32
};
constexpr std::int64_t element_bytes(Units units) {
  return units == Units::single ? 4 : 2;
}
constexpr std::int64_t elements_per_unit(Units units) {
  return units == Units::pairs ? 2 : 1;
}

/// Units of fp32 in a cache line.
inline constexpr std::int64_t line_units = 16;

/// A matrix in memory, row-major.
struct Stored {
  const std::byte* data = nullptr;
  std::int64_t rows = 0, columns = 0;
};

/// Where a block of sums goes: c = sum (+ addend) (+ bias), added in this order.
struct Target {
  std::byte* c = nullptr;
  const float* addend = nullptr;  ///< may be c
  const std::byte* bias = nullptr;
  std::int64_t c_stride = 0, addend_stride = 0;  ///< in elements
  std::int64_t columns = 0;                      ///< of the panel's; more are not written
  bool c_is_bf16 = false, bias_is_bf16 = false;

  [[nodiscard]] std::int64_t element_bytes() const { return c_is_bf16 ? 2 : 4; }
};

/// Lines of memory that are needed next, prefetched during the sums: `lines` of them with every
/// 16 units, at `first` + step * i + stride * j, the distances in bytes. They change no number.
struct Ahead {
  const std::byte* first = nullptr;
  std::int64_t lines = 0, step = 0, stride = 0;
};

/// The operands of the sums: element (r, u) of A is a[r · row_stride + u · unit_stride].
struct Terms {
  const Unit* a = nullptr;
  std::int64_t row_stride = 0;  ///< in bytes
  const Unit* b = nullptr;      ///< a panel
  std::int64_t units = 0;
  bool half_unit = false;  ///< only one bf16 of A's last unit is used
  Ahead ahead{};
};

/// Terms and target of the rows from `done` on, also for a packed panel of A. The lines of Ahead
/// were prefetched during the first rows.
template <bool packed>
void skip_rows(Terms& terms, Target& target, std::int64_t done) {
  if constexpr (packed)
    terms.a += done;
  else
    terms.a = reinterpret_cast<const Unit*>(reinterpret_cast<const std::byte*>(terms.a) +
                                            done * terms.row_stride);
  target.c += done * target.c_stride * target.element_bytes();
  if (target.addend != nullptr)
    target.addend += done * target.addend_stride;
  terms.ahead.lines = 0;
}

}  // namespace trireme::ops::cpu
