// SPDX-License-Identifier: Apache-2.0
// AMX tile registers: eight of 16 rows by 64 bytes; all functions here assume this configuration. A
// tile of A is 16 rows by 16 units (32 bf16 along K); of B, 16 units by 16 columns; of C, 16 by 16
// fp32.
//
// The compiler does not track tiles: what it has stored is in memory only after `stored()`.
// 1. The kernel grants AMX to a process on request (amx_matmul.cpp, available()); without it the
//    first tile instruction ends the process.
// 2. Tiles are a state of the thread. They are configured by a Tiles object and released with it,
//    so that a thread switch saves nothing while no product is under way.
// 3. TDPBF16PS adds products of bf16 to fp32 sums in an order that K alone decides, as the AVX-512
//    kernel does, but not to the same bits. Subnormal numbers count as zero.
// 4. Four tiles hold sums, two A and two B: per 16 units of K four loads feed four products.
#pragma once

#include "ops/cpu/products.hpp"

#define TRIREME_AMX                                                               \
  __attribute__((                                                                 \
      target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,fma,prfchw,amx-tile," \
             "amx-bf16")))
#define TRIREME_AMX_INLINE inline __attribute__((always_inline)) TRIREME_AMX

namespace trireme::ops::cpu::amx {

using avx512::lanes;

inline constexpr std::int64_t tile_rows = 16, block_edge = 2 * tile_rows;

/// Everything stored so far can be loaded into tiles.
inline void stored() {
  asm volatile("" ::: "memory");
}

/// The tiles of this thread, for as long as this lives. One at a time per thread.
class Tiles {
 public:
  TRIREME_AMX Tiles() {
    struct alignas(64) Shapes {
      std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
      std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    };
    static constexpr Shapes shapes;
    _tile_loadconfig(&shapes);
  }
  TRIREME_AMX ~Tiles() { _tile_release(); }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;
};

struct Nothing {
  TRIREME_AMX_INLINE void operator()() const {}
};

/// 32 x 32 of C, `c_stride` apart, (+)= the product of 32 rows of A, `row_bytes` apart, and a panel
/// of B over `units` units, a multiple of 16. Calls meanwhile() once per 16 units. Requires:
/// stored().
template <bool accumulate, class Meanwhile = Nothing>
TRIREME_AMX_INLINE void multiply_tiles(float* c,
                                       std::int64_t c_stride,
                                       const Unit* a,
                                       std::int64_t row_bytes,
                                       const Unit* b,
                                       std::int64_t units,
                                       Meanwhile meanwhile = {}) {
  constexpr std::int64_t b_bytes = avx512::panel_columns * sizeof(Unit);
  const std::int64_t c_bytes = c_stride * static_cast<std::int64_t>(sizeof(float));
  const std::byte* upper = reinterpret_cast<const std::byte*>(a);
  const std::byte* lower = upper + tile_rows * row_bytes;
  float* c_lower = c + tile_rows * c_stride;
  if constexpr (accumulate) {
    _tile_loadd(0, c, c_bytes);
    _tile_loadd(1, c + tile_rows, c_bytes);
    _tile_loadd(2, c_lower, c_bytes);
    _tile_loadd(3, c_lower + tile_rows, c_bytes);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (std::int64_t u = 0; u < units; u += lanes) {
    const Unit* line = b + u * avx512::panel_columns;
    _tile_loadd(6, line, b_bytes);
    _tile_loadd(4, upper + 4 * u, row_bytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, line + lanes, b_bytes);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, lower + 4 * u, row_bytes);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
    meanwhile();
  }
  _tile_stored(0, c, c_bytes);
  _tile_stored(1, c + tile_rows, c_bytes);
  _tile_stored(2, c_lower, c_bytes);
  _tile_stored(3, c_lower + tile_rows, c_bytes);
}

}  // namespace trireme::ops::cpu::amx
