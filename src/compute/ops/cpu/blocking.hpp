// SPDX-License-Identifier: Apache-2.0
// Divides the work of a product (blocked_matmul.hpp): columns of C into chunks whose panels stay in
// a cache, rows into parts for threads. The division depends on the size of a cache and on the
// number of threads, but no bits do.
#pragma once

#include <algorithm>

#include <unistd.h>

#include "ops/cpu/packed_matmul.hpp"

namespace trireme::ops::cpu {

/// Size of the packed columns of a chunk; each is used for all rows of A that are packed at once.
/// With one panel of rows, or rows as stored: half of the second-level cache, since the rows need
/// some of the other half; 512 KiB if the size is unknown, at most 1 MiB. On Xeons this takes 0.95
/// to 0.97 of the time of 512 KiB; larger sizes were not tried. With groups of panels: 1.25 MiB,
/// which may be in the third-level cache, so that A is packed for fewer chunks, and once for the 24
/// AVX-512 panels of 768 columns.
inline std::int64_t chunk_bytes(bool grouped) {
  constexpr std::int64_t least = std::int64_t{128} << 10U, usual = 4 * least, most = 8 * least;
  if (grouped)
    return 10 * least;
#if defined(_SC_LEVEL2_CACHE_SIZE)
  if (const std::int64_t cache = sysconf(_SC_LEVEL2_CACHE_SIZE); cache > 0)
    return std::clamp(cache / 2, least, most);
#endif
  return usual;
}

struct Blocking {
  std::int64_t chunk_panels = 0, chunks = 0, chunk_units = 0;
  std::int64_t part_rows = 0, parts = 0, group_rows = 0;
  bool fixed_parts = false;  ///< each part is always processed by the same thread
  /// A's rows are widened, or are at a distance that a first-level cache maps to few sets, and are
  /// more than these have lines for.
  bool copies_rows = false;

  template <class Kernel>
  static Blocking of(const MatmulShape& s, const Depth& depth, int threads) {
    Blocking cut;
    const std::int64_t panels = divided_up(s.n, Kernel::panel_columns);
    const std::int64_t panel_units = depth.block_units * Kernel::panel_columns;
    const auto panel_bytes = panel_units * static_cast<std::int64_t>(sizeof(Unit));
    const bool grouped = s.a_transposed && Kernel::panels_at_once > 1;
    cut.chunk_panels = std::clamp<std::int64_t>(chunk_bytes(grouped) / panel_bytes, 1, panels);
    cut.chunks = divided_up(panels, cut.chunk_panels);
    cut.chunk_panels = divided_up(panels, cut.chunks);  // equal chunks
    cut.chunks = divided_up(panels, cut.chunk_panels);
    cut.chunk_units = cut.chunk_panels * panel_units;
    // Three tasks for each thread, taken by whoever is free. But each part packs B for itself,
    // which takes as long as multiplying 19 rows; so of few rows every thread has one part, the
    // same each time, and finds what it has written before in its caches, as other loops share out
    // rows alike. With more chunks than three it would pack more often than for three tasks.
    // Source: steps of 0.89 of the quickstart on two threads of Zen 4 (medians of ten runs, bf16).
    constexpr std::int64_t few_rows = 384, few_chunks = 3, least_rows = 4;
    cut.fixed_parts = threads > 1 && s.m < few_rows * threads && cut.chunks <= few_chunks;
    const std::int64_t wanted = threads == 1 ? 1
                                : cut.fixed_parts
                                    ? threads
                                    : divided_up(std::int64_t{3} * threads, cut.chunks);
    cut.group_rows = Kernel::panel_rows * (s.a_transposed ? Kernel::panels_at_once : 1);
    cut.part_rows =
        rounded_up(divided_up(s.m, wanted), cut.fixed_parts ? least_rows : cut.group_rows);
    cut.parts = divided_up(s.m, cut.part_rows);
    const std::int64_t row_bytes = s.k * element_bytes(Kernel::units);
    constexpr std::int64_t ways = 8;
    cut.copies_rows = !s.a_transposed &&
                      (Kernel::units == Units::widened ||
                       (Kernel::panel_rows > ways && row_bytes % 2048 == 0 && row_bytes > 2048));
    return cut;
  }
};

}  // namespace trireme::ops::cpu
