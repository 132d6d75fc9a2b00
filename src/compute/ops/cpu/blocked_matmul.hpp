// SPDX-License-Identifier: Apache-2.0
// The loops and the packing of a product, for any kernel that multiplies a few rows of A by a panel
// of B. The loops are, from the outside: tasks (a chunk of C's columns, a part of its rows;
// blocking.hpp), blocks of K, groups of rows of A, panels of B, and as many rows as the kernel
// multiplies at a time. The panels of a chunk stay in a cache while the rows of A are multiplied.
// Source: Goto, van de Geijn, "Anatomy of high-performance matrix multiplication", 2008.
//
// A kernel is a struct of static members. Only the kernel uses the instructions of a processor:
//
//   units, panel_columns, panel_rows
//   panels_at_once              for a transposed A, whose rows K crosses: panels packed together,
//                               so that a cache line that they share is fetched only once
//   pack_b, pack_b_transposed, pack_a_transposed, copy_rows     as in pack_kernels.hpp
//   product_rows<packed>(Terms, Target, rows)                   rows: 1 to panel_rows
// 1. Each thread packs the columns of its tasks itself and waits for no other thread.
// 2. Divisions that depend on the number of threads or on the size of a cache do not change bits.
#pragma once

#include <algorithm>

#include <omp.h>

#include "ops/cpu/blocking.hpp"
#include "ops/cpu/packed_matmul.hpp"

namespace trireme::ops::cpu {

template <class Kernel>
class BlockedMatmul final : public PackedMatmul {
 public:
  explicit BlockedMatmul(const MatmulShape& shape)
      : PackedMatmul(shape, depth_of(shape), Kernel::panel_columns),
        blocking_(Blocking::of<Kernel>(shape, depth_, threads_)) {
    set_workspace(
        0, blocking_.chunk_units + blocking_.group_rows * depth_.copied_stride() + line_units);
  }

  [[nodiscard]] double run_blocks(std::int64_t count) const override {
    SmallBlock<Kernel::panel_rows, Kernel::panel_columns> block;
    const Terms terms{.a = block.a,
                      .row_stride = block.units * static_cast<std::int64_t>(sizeof(Unit)),
                      .b = block.b,
                      .units = block.units};
    const Target target{.c = reinterpret_cast<std::byte*>(block.sums),
                        .c_stride = Kernel::panel_columns,
                        .columns = Kernel::panel_columns};
    for (std::int64_t i = 0; i < count; ++i)
      Kernel::template product_rows<false>(terms, target, Kernel::panel_rows);
    return block.flops(Kernel::units) * static_cast<double>(count);
  }

 private:
  /// A panel of A fits into the first-level cache together with the passing lines of B; rows that
  /// are read where they are need not: 1152 units are a whole K = 2304 of bf16, which takes 0.96 of
  /// the time of two halves. The same for all kernels, so that these do not differ in bits.
  static Depth depth_of(const MatmulShape& s) {
    return {divided_up(s.k, elements_per_unit(Kernel::units)), s.a_transposed ? 384 : 1152};
  }

  void multiply(const Operands& operands, const device::cpu::Workspace& workspace) const override {
    const std::int64_t tasks = blocking_.chunks * blocking_.parts;
    const int threads = std::min(threads_, omp_get_max_threads());
    if (blocking_.fixed_parts) {
#pragma omp parallel for schedule(static) num_threads(threads) if (tasks > 1) collapse(2)
      for (std::int64_t part = 0; part < blocking_.parts; ++part)
        for (std::int64_t chunk = 0; chunk < blocking_.chunks; ++chunk)
          multiply_task(operands, chunk, part, own_units(workspace));
      return;
    }
#pragma omp parallel for schedule(dynamic) num_threads(threads) if (tasks > 1)
    for (std::int64_t task = 0; task < tasks; ++task)
      multiply_task(operands, task / blocking_.parts, task % blocking_.parts, own_units(workspace));
  }

  void multiply_task(const Operands& operands,
                     std::int64_t chunk,
                     std::int64_t part,
                     Unit* scratch) const {
    const MatmulShape& s = shape_;
    const std::int64_t first_panel = chunk * blocking_.chunk_panels;
    const std::int64_t last_panel =
        std::min(first_panel + blocking_.chunk_panels, divided_up(s.n, Kernel::panel_columns));
    const std::int64_t panel_units = Kernel::panel_columns * depth_.block_units;
    for (std::int64_t begin = 0; begin < depth_.units; begin += depth_.block_units) {
      const Range range = depth_.block_from(begin);
      for (std::int64_t panel = first_panel; panel < last_panel; ++panel)
        pack_panel(scratch + (panel - first_panel) * panel_units, operands, panel, range,
                   Kernel::pack_b, Kernel::pack_b_transposed);
      const std::int64_t first_row = part * blocking_.part_rows;
      const std::int64_t last_row = std::min(first_row + blocking_.part_rows, s.m);
      for (std::int64_t row = first_row; row < last_row; row += blocking_.group_rows)
        multiply_group(operands, {row, std::min(row + blocking_.group_rows, last_row)},
                       {first_panel, last_panel}, range, scratch);
    }
  }

  /// Rows of A by panels of B, which are in `scratch`; after them is room for the rows.
  void multiply_group(const Operands& operands,
                      const Range& rows,
                      const Range& panels,
                      const Range& range,
                      Unit* scratch) const {
    const MatmulShape& s = shape_;
    const Group group{rows, panels.size() * divided_up(rows.size(), Kernel::panel_rows), range};
    Unit* own = scratch + blocking_.chunk_units;
    bring_rows(operands, group, own);
    std::int64_t place = 0;
    for (std::int64_t panel = panels.begin; panel < panels.end; ++panel)
      for (std::int64_t row = rows.begin; row < rows.end; row += Kernel::panel_rows) {
        Terms terms = find_terms(operands, group, row, own);
        terms.ahead = rows_ahead(operands, group, place++);
        terms.b = scratch + (panel - panels.begin) * Kernel::panel_columns * depth_.block_units;
        const Target target = target_of(operands, row, panel, range);
        const std::int64_t count = std::min(Kernel::panel_rows, rows.end - row);
        if (s.a_transposed)
          Kernel::template product_rows<true>(terms, target, count);
        else
          Kernel::template product_rows<false>(terms, target, count);
      }
  }

  struct Group {
    Range rows;
    std::int64_t places;  ///< calls of the kernel
    Range range;          ///< of K
  };

  /// The group's rows of A as panels or copies in `own`, where that has to be.
  void bring_rows(const Operands& operands, const Group& group, Unit* own) const {
    const MatmulShape& s = shape_;
    const Range& range = group.range;
    if (s.a_transposed)
      Kernel::pack_a_transposed(own, panel_stride(), {operands.a, s.k, s.m}, group.rows.begin,
                                group.rows.size(), range.begin, range.end);
    else if (blocking_.copies_rows)
      Kernel::copy_rows(own, depth_.copied_stride(), {operands.a, s.m, s.k}, group.rows.begin,
                        group.rows.size(), range.begin, range.end);
  }
  [[nodiscard]] std::int64_t panel_stride() const {
    return Kernel::panel_rows * depth_.copied_stride();
  }

  /// The rows of A from `row` on, where they are or in `own`.
  Terms find_terms(const Operands& operands,
                   const Group& group,
                   std::int64_t row,
                   const Unit* own) const {
    const MatmulShape& s = shape_;
    const Range& range = group.range;
    Terms terms;
    terms.units = range.size();
    if (s.a_transposed) {
      terms.a = own + (row - group.rows.begin) / Kernel::panel_rows * panel_stride();
      return terms;
    }
    if (blocking_.copies_rows) {
      terms.a = own;
      terms.row_stride = depth_.copied_stride() * static_cast<std::int64_t>(sizeof(Unit));
      return terms;
    }
    constexpr std::int64_t element = element_bytes(Kernel::units);
    terms.a = reinterpret_cast<const Unit*>(operands.a + row * s.k * element) + range.begin;
    terms.row_stride = s.k * element;
    if (Kernel::units == Units::pairs && s.k % 2 != 0 && range.end == depth_.units) {
      --terms.units;
      terms.half_unit = true;
    }
    return terms;
  }

  /// The lines of the next rows of A that are prefetched during call `place`.
  [[nodiscard]] Ahead rows_ahead(const Operands& operands,
                                 const Group& group,
                                 std::int64_t place) const {
    const MatmulShape& s = shape_;
    constexpr std::int64_t element = element_bytes(Kernel::units);
    constexpr std::int64_t in_unit = elements_per_unit(Kernel::units);
    const std::int64_t next = group.rows.end, end = std::min(next + blocking_.group_rows, s.m);
    const Range& range = group.range;
    if (next >= end)
      return {};
    if (!s.a_transposed) {  // each call some of the rows, along K
      const std::int64_t share = divided_up(Kernel::panel_rows, group.places);
      const std::int64_t first = next + place * share;
      return {.first = operands.a + (first * s.k + range.begin * in_unit) * element,
              .lines = std::clamp<std::int64_t>(end - first, 0, share),
              .step = line_units * in_unit * element,
              .stride = s.k * element};
    }
    // Lines of a row of K that did not come with the rows before. Each call fetches one of them, or
    // some, of as many rows of K as it has steps.
    constexpr std::int64_t line = 64;
    const std::int64_t first_line = (next - 1) * element / line + 1;
    const std::int64_t lines = (end - 1) * element / line + 1 - first_line;
    const std::int64_t steps = divided_up(range.size(), line_units);
    const std::int64_t parts = divided_up(range.size() * in_unit, steps);
    const std::int64_t share = divided_up(lines * parts, group.places);
    const std::int64_t mine = place * share, row_bytes = s.m * element;
    if (mine >= lines * parts)
      return {};
    return {.first = operands.a + (range.begin * in_unit + mine % parts * steps) * row_bytes +
                     (first_line + mine / parts) * line,
            .lines = share,
            .step = row_bytes,
            .stride = steps * row_bytes};
  }

  Blocking blocking_;
};

}  // namespace trireme::ops::cpu
