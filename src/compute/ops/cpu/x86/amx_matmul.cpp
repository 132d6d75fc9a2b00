// SPDX-License-Identifier: Apache-2.0
// Loops, from the outside: chunks of C's columns and blocks of K, whose part of B is packed by all
// threads together; then groups of C's rows, which threads take one by one; in a group, panels of B
// by the group's rows, 32 at a time. A group's rows of A stay in the second-level cache while the
// panels pass by, each of which is used for the whole group. With a short K it is the other way
// round (Blocking::rows_first).
#include "ops/cpu/x86/amx_matmul.hpp"

#include <algorithm>

#include <omp.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ops/cpu/loops.hpp"
#include "ops/cpu/packed_matmul.hpp"
#include "ops/cpu/x86/amx_block.hpp"
#include "ops/cpu/x86/amx_pack.hpp"

namespace trireme::ops::cpu::amx {
namespace {

/// Packed columns of B and rows of A, in bytes: shares of the third- and second-level cache.
constexpr std::int64_t chunk_bytes = std::int64_t{4} << 20U, group_bytes = std::int64_t{1} << 20U;
constexpr std::int64_t unit_bytes = sizeof(Unit);
/// The most of C that is likely to be in the caches when it is read next.
constexpr std::int64_t cached_bytes = std::int64_t{4} << 20U;
/// The most of C, or of panels, likely to be in the second-level cache; prefetching it is a loss.
constexpr std::int64_t near_bytes = std::int64_t{1} << 19U;

std::int64_t bytes_of_c(const MatmulShape& s) {
  return s.m * s.n * static_cast<std::int64_t>(size_bytes(s.c));
}

/// The longest block of K in units. This decides bits, so it does not depend on M.
/// Sums over several blocks are read and written once per block, so blocks are usually long. The
/// gradient of the input of an output head differs: K is the vocabulary, and there are usually 512
/// rows, whose sums stay in the second-level cache. Shorter blocks, whose part of B stays there as
/// well, take 0.85 to 0.9 of the time for 768 to 1280 columns. With fewer columns they gain nothing.
std::int64_t most_block_units(const MatmulShape& s) {
  constexpr std::int64_t usual = 1536, shorter = 384;
  const bool of_head = !s.a_transposed && !s.b_transposed && s.k >= 16 * s.n;
  return of_head && s.n > 512 && s.n <= 1280 ? shorter : usual;
}

/// How C is divided, which affects only the order.
struct Blocking {
  std::int64_t panels = 0, chunk_panels = 0, panel_units = 0;
  std::int64_t group_rows = 0, groups = 0;
  std::int64_t copied_units = 0;  ///< of the rows of a group, where tiles cannot be loaded from A
  /// 32 rows of A stay in the first-level cache while all panels pass by, so that C is read and
  /// written along its rows. The panels stay in the second-level cache.
  bool rows_first = false;

  Blocking(const MatmulShape& s, const Depth& depth, int threads) {
    panels = divided_up(s.n, panel_columns);
    panel_units = panel_columns * depth.block_units;
    chunk_panels = std::clamp<std::int64_t>(chunk_bytes / (panel_units * unit_bytes), 1, panels);
    const std::int64_t fitting =
        std::max<std::int64_t>(group_bytes / (depth.block_units * unit_bytes) / block_edge, 1);
    const std::int64_t shared =
        threads == 1 ? fitting : divided_up(divided_up(s.m, block_edge), std::int64_t{3} * threads);
    group_rows = std::min(fitting, shared) * block_edge;
    groups = divided_up(s.m, group_rows);
    rows_first = depth.block_units <= 256 && chunk_panels * panel_units * unit_bytes <= near_bytes;
    if (s.a_transposed || s.k % (2 * lanes) != 0 || s.m % block_edge != 0)
      copied_units = group_rows * depth.copied_stride();
  }
};

std::int64_t tiled(const Range& range) {
  return rounded_up(range.size(), lanes);
}

/// Rows from which tiles of A are loaded.
struct Rows {
  const std::byte* first;
  std::int64_t row_bytes;
  [[nodiscard]] const Unit* from(std::int64_t row) const {
    return reinterpret_cast<const Unit*>(first + row * row_bytes);
  }
};

class MatmulAmx final : public PackedMatmul {
 public:
  explicit MatmulAmx(const MatmulShape& shape)
      : PackedMatmul(shape, {divided_up(shape.k, 2), most_block_units(shape)}, panel_columns),
        blocking_(shape, depth_, threads_),
        around_caches_(!shape.accumulate && shape.n % panel_columns == 0 &&
                       bytes_of_c(shape) > cached_bytes) {
    set_workspace(blocking_.chunk_panels * blocking_.panel_units,
                  blocking_.copied_units + (sums_rows() ? blocking_.group_rows : 0));
  }

  [[nodiscard]] TRIREME_AMX double run_blocks(std::int64_t count) const override {
    SmallBlock<block_edge, panel_columns> block;
    stored();
    const Tiles tiles;
    for (std::int64_t i = 0; i < count; ++i)
      multiply_tiles<false>(block.sums, panel_columns, block.a, block.units * unit_bytes, block.b,
                            block.units);
    return block.flops(Units::pairs) * static_cast<double>(count);
  }

  [[nodiscard]] bool sums_rows() const override {
    return shape_.row_sums && shape_.m % block_edge == 0 && shape_.k % (2 * lanes) == 0;
  }

 private:
  void multiply(const Operands& operands, const device::cpu::Workspace& workspace) const override {
    const Blocking& cut = blocking_;
    const int threads = std::min(threads_, omp_get_max_threads());
    Unit* panels = shared_units(workspace);
#pragma omp parallel num_threads(threads) if (threads > 1)
    for (std::int64_t first = 0; first < cut.panels; first += cut.chunk_panels)
      for (std::int64_t begin = 0; begin < depth_.units; begin += depth_.block_units) {
        const Range range = depth_.block_from(begin);
        const std::int64_t last = std::min(first + cut.chunk_panels, cut.panels);
        pack_panels(panels, operands, {first, last}, range);
#pragma omp for schedule(dynamic)
        for (std::int64_t group = 0; group < cut.groups; ++group)
          multiply_group(operands, group, {first, last}, range, panels, own_units(workspace));
      }
  }

  /// Called by all threads together.
  void pack_panels(Unit* to,
                   const Operands& operands,
                   const Range& panels,
                   const Range& range) const {
    const MatmulShape& s = shape_;
    const std::int64_t stride = blocking_.panel_units;
    const bool whole =
        !s.b_transposed && has_whole_tiles(range) && panels.end * panel_columns <= s.n;
    const std::int64_t at_once = whole ? 8 : 1;
#pragma omp for schedule(static)
    for (std::int64_t panel = panels.begin; panel < panels.end; panel += at_once) {
      Unit* at = to + (panel - panels.begin) * stride;
      if (whole)
        pack_whole_panels(at, stride, {operands.b, s.k, s.n}, panel,
                          std::min(panel + at_once, panels.end), range.begin, range.end);
      else
        pack_padded_panel(at, operands, panel, range);
    }
  }

  TRIREME_AMX void pack_padded_panel(Unit* to,
                                     const Operands& operands,
                                     std::int64_t panel,
                                     const Range& range) const {
    pack_panel(to, operands, panel, range, avx512::pack_b<Units::pairs>,
               avx512::pack_b_transposed<Units::pairs>);
    std::fill(to + range.size() * panel_columns, to + tiled(range) * panel_columns, Unit{0});
  }

  /// Whether no tile along K is padded.
  [[nodiscard]] bool has_whole_tiles(const Range& range) const {
    return range.size() % lanes == 0 && 2 * range.end <= shape_.k;
  }

  /// Rows of A where tiles can be loaded from them; adds to the row sums if `summed`.
  TRIREME_AMX void copy_rows(Unit* to,
                             const Operands& operands,
                             const Range& rows,
                             const Range& range,
                             bool summed) const {
    const MatmulShape& s = shape_;
    const std::int64_t stride = depth_.copied_stride();
    std::int64_t done = 0;
    if (s.a_transposed && has_whole_tiles(range)) {
      done = rows.size() / block_edge * block_edge;
      auto* sums = reinterpret_cast<float*>(to + blocking_.copied_units);
      (summed ? pack_whole_rows<true> : pack_whole_rows<false>)(to, stride, {operands.a, s.k, s.m},
                                                                rows.begin, done, range.begin,
                                                                range.end, sums);
      for (std::int64_t r = 0; summed && r < done; ++r)
        operands.row_sums[rows.begin + r] += sums[r];
    }
    for (; done < rounded_up(rows.size(), block_edge); done += tile_rows) {
      Unit* at = to + done * stride;
      if (s.a_transposed)
        avx512::pack_rows(at, stride, {operands.a, s.k, s.m}, rows.begin + done, range.begin,
                          range.end);
      else
        avx512::copy_rows<Units::pairs>(at, stride, {operands.a, s.m, s.k}, rows.begin + done,
                                        tile_rows, range.begin, range.end);
    }
  }

  TRIREME_AMX void multiply_group(const Operands& operands,
                                  std::int64_t group,
                                  const Range& chunk,
                                  const Range& range,
                                  const Unit* panels,
                                  Unit* own) const {
    const MatmulShape& s = shape_;
    const std::int64_t first_row = group * blocking_.group_rows;
    const Range rows{first_row, std::min(first_row + blocking_.group_rows, s.m)};
    Rows a{operands.a + 2 * (rows.begin * s.k + 2 * range.begin), 2 * s.k};
    if (blocking_.copied_units > 0) {
      copy_rows(own, operands, rows, range, operands.row_sums != nullptr && chunk.begin == 0);
      a = {reinterpret_cast<const std::byte*>(own), depth_.copied_stride() * unit_bytes};
    }
    stored();
    const Tiles tiles;
    alignas(64) float sums[2][block_edge * block_edge];  // of the block and of the one before it
    int block = 0;
    PendingSums pending;
    const std::int64_t steps = tiled(range) / lanes;
    Lines next;
    std::int64_t row = rows.begin, panel = chunk.begin;
    while (row < rows.end && panel < chunk.end) {
      const Unit* b = panels + (panel - chunk.begin) * blocking_.panel_units;
      if (!blocking_.rows_first && row == rows.begin && panel + 1 < chunk.end) {
        next.next = reinterpret_cast<const std::byte*>(b + blocking_.panel_units);
        next.end = next.next + tiled(range) * panel_columns * unit_bytes;
      }
      const BlockTarget target = block_target(operands, row, rows.end, panel, range);
      multiply_tiles<false>(
          sums[block], block_edge, a.from(row - rows.begin), a.row_bytes, b, tiled(range),
          Meanwhile{Prefetches(target, steps, next), pending, divided_up(pending.rows(), steps)});
      stored();
      pending = PendingSums(sums[block], target);
      block ^= 1;
      if (blocking_.rows_first && ++panel == chunk.end) {
        panel = chunk.begin;
        row += block_edge;
      } else if (!blocking_.rows_first && (row += block_edge) >= rows.end) {
        row = rows.begin;
        ++panel;
      }
    }
    pending.store(block_edge);
    _mm_sfence();  // orders these stores, which bypass the caches, before the thread's later ones
  }

  [[nodiscard]] TRIREME_AMX BlockTarget block_target(const Operands& operands,
                                                     std::int64_t row,
                                                     std::int64_t last_row,
                                                     std::int64_t panel,
                                                     const Range& range) const {
    BlockTarget target{target_of(operands, row, panel, range)};
    target.rows = std::min(block_edge, last_row - row);
    target.around_caches = around_caches_ && range.end == depth_.units &&
                           reinterpret_cast<std::uintptr_t>(target.c) % 64 == 0;
    target.prefetched = !target.around_caches && bytes_of_c(shape_) > near_bytes;
    return target;
  }

  Blocking blocking_;
  bool around_caches_;  // C, where it is aligned
};

/// clang 14 has no name for AMX in __builtin_cpu_supports. Source: Intel's Software Developer's
/// Manual, CPUID leaf 7: bit 22 of EDX for bf16, bit 24 for tiles.
bool has_tiles() {
  constexpr unsigned needed = (1U << 22U) | (1U << 24U);
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & needed) == needed;
}

bool ask_for_tiles() {
#if defined(SYS_arch_prctl)
  constexpr int request_permission = 0x1023, tile_data = 18;
  return has_tiles() && __builtin_cpu_supports("avx512bf16") &&
         syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
#else
  return false;
#endif
}

}  // namespace

bool available() {
  static const bool granted = has_avx512() && ask_for_tiles();
  return granted;
}

std::unique_ptr<Matmul::Implementation> make_matmul(const MatmulShape& shape) {
  return std::make_unique<MatmulAmx>(shape);
}

}  // namespace trireme::ops::cpu::amx
#endif
