// SPDX-License-Identifier: Apache-2.0
// Loops, from the outside: chunks of C's columns and blocks of K, whose part of B is packed by all
// threads together; then groups of C's rows, which threads take one by one; in a group, panels of B
// by the group's rows, 32 at a time. A group's rows of A stay in the second-level cache while the
// panels pass by, each of which is used for the whole group.
#include "ops/cpu/x86/amx_matmul.hpp"

#include <algorithm>

#include <omp.h>

#include "base/error.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ops/cpu/loops.hpp"
#include "ops/cpu/packed_matmul.hpp"
#include "ops/cpu/x86/amx_block.hpp"

namespace trireme::ops::cpu::amx {
namespace {

using avx512::panel_columns;

/// Packed columns of B and rows of A, in bytes: shares of the third- and second-level cache.
constexpr std::int64_t chunk_bytes = std::int64_t{4} << 20U, group_bytes = std::int64_t{1} << 20U;
constexpr std::int64_t unit_bytes = sizeof(Unit);
/// The most of C that is likely to be in the caches when it is read next.
constexpr std::int64_t cached_bytes = std::int64_t{4} << 20U;

constexpr std::int64_t most_block_units = 1536;

/// How C is cut, which decides nothing but the order.
struct Blocking {
  std::int64_t panels = 0, chunk_panels = 0, panel_units = 0;
  std::int64_t group_rows = 0, groups = 0;
  std::int64_t copied_units = 0;  ///< of the rows of a group, where tiles cannot be loaded from A

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
    if (s.a_transposed || s.k % (2 * lanes) != 0 || s.m % block_edge != 0)
      copied_units = group_rows * depth.copied_stride();
  }
};

/// The units of whole tiles.
std::int64_t tiled(const Range& range) {
  return rounded_up(range.size(), lanes);
}

class MatmulAmx final : public PackedMatmul {
 public:
  explicit MatmulAmx(const MatmulShape& shape)
      : PackedMatmul(shape, {divided_up(shape.k, 2), most_block_units}, panel_columns),
        blocking_(shape, depth_, threads_),
        around_caches_(!shape.accumulate && shape.n % panel_columns == 0 &&
                       shape.m * shape.n * static_cast<std::int64_t>(size_bytes(shape.c)) >
                           cached_bytes) {
    set_workspace(blocking_.chunk_panels * blocking_.panel_units, blocking_.copied_units);
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
#pragma omp for schedule(static)
        for (std::int64_t panel = first; panel < last; ++panel)
          pack_whole_tiles(panels + (panel - first) * cut.panel_units, operands, panel, range);
#pragma omp for schedule(dynamic)
        for (std::int64_t group = 0; group < cut.groups; ++group)
          multiply_group(operands, group, first, last, range, panels, own_units(workspace));
      }
  }

  TRIREME_AMX void pack_whole_tiles(Unit* to,
                                    const Operands& operands,
                                    std::int64_t panel,
                                    const Range& range) const {
    pack_panel(to, operands, panel, range, avx512::pack_b<Units::pairs>,
               avx512::pack_b_transposed<Units::pairs>);
    std::fill(to + range.size() * panel_columns, to + tiled(range) * panel_columns, Unit{0});
  }

  TRIREME_AMX void multiply_group(const Operands& operands,
                                  std::int64_t group,
                                  std::int64_t first_panel,
                                  std::int64_t last_panel,
                                  const Range& range,
                                  const Unit* panels,
                                  Unit* own) const {
    const MatmulShape& s = shape_;
    const std::int64_t first_row = group * blocking_.group_rows;
    const std::int64_t last_row = std::min(first_row + blocking_.group_rows, s.m);
    const Unit* a = reinterpret_cast<const Unit*>(operands.a + 2 * first_row * s.k) + range.begin;
    std::int64_t row_bytes = 2 * s.k;
    if (blocking_.copied_units > 0) {
      const std::int64_t stride = depth_.copied_stride();
      for (std::int64_t row = first_row; row < last_row; row += block_edge)
        for (std::int64_t half = 0; half < block_edge; half += tile_rows) {
          Unit* to = own + (row + half - first_row) * stride;
          if (s.a_transposed)
            avx512::pack_rows(to, stride, {operands.a, s.k, s.m}, row + half, range.begin,
                              range.end);
          else
            avx512::copy_rows<Units::pairs>(to, stride, {operands.a, s.m, s.k}, row + half,
                                            tile_rows, range.begin, range.end);
        }
      a = own;
      row_bytes = stride * unit_bytes;
    }
    stored();
    const Tiles tiles;
    for (std::int64_t panel = first_panel; panel < last_panel; ++panel) {
      const Unit* b = panels + (panel - first_panel) * blocking_.panel_units;
      Lines next;
      if (panel + 1 < last_panel) {
        next.next = reinterpret_cast<const std::byte*>(b + blocking_.panel_units);
        next.end = next.next + tiled(range) * panel_columns * unit_bytes;
      }
      for (std::int64_t row = first_row; row < last_row; row += block_edge) {
        const BlockTarget target = block_target(operands, row, last_row, panel, range);
        multiply_block(a + (row - first_row) * (row_bytes / unit_bytes), row_bytes, b, tiled(range),
                       target, next);
      }
    }
    _mm_sfence();  // orders these stores, which bypass the caches, before the thread's later ones
  }

  TRIREME_AMX static void multiply_block(const Unit* a,
                                         std::int64_t row_bytes,
                                         const Unit* b,
                                         std::int64_t units,
                                         const BlockTarget& target,
                                         Lines& next_panel) {
    alignas(64) float sums[block_edge * block_edge];
    multiply_tiles<false>(sums, block_edge, a, row_bytes, b, units,
                          Prefetches(target, units / lanes, next_panel));
    if (target.around_caches)
      store_block<true>(sums, target);
    else
      store_block<false>(sums, target);
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

bool multiplies(const MatmulShape& shape) {
  return shape.a == DType::bf16 && shape.b == DType::bf16 && available();
}

std::unique_ptr<Matmul::Implementation> make_matmul(const MatmulShape& shape) {
  return std::make_unique<MatmulAmx>(shape);
}

}  // namespace trireme::ops::cpu::amx
#else
namespace trireme::ops::cpu::amx {

bool available() {
  return false;
}

bool multiplies(const MatmulShape& /*shape*/) {
  return false;
}

std::unique_ptr<Matmul::Implementation> make_matmul(const MatmulShape& shape) {
  TRIREME_EXPECT(false, "AMX products of {} on another processor", name(shape.a));
  return nullptr;
}

}  // namespace trireme::ops::cpu::amx
#endif
