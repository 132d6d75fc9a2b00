// SPDX-License-Identifier: Apache-2.0
// Loops, from the outside: tasks (a chunk of C's columns, a part of its rows), blocks of K, rows of
// A by twelve, panels of B by 32 columns. Source of the scheme: Goto, van de Geijn, "Anatomy of
// high-performance matrix multiplication", 2008.
#include "ops/cpu/x86/avx512_matmul.hpp"

#include <algorithm>

#include <omp.h>
#include <unistd.h>

#include "base/error.hpp"

#if defined(__x86_64__)
#include "ops/cpu/loops.hpp"
#include "ops/cpu/x86/packed_matmul.hpp"

namespace trireme::ops::cpu::avx512 {
namespace {

/// What the packed columns of a chunk take: half of the second-level cache, the rows of A need some
/// of the other half. 512 KiB on Zen 4, Skylake and where the system does not know; 1 MiB on later
/// Xeons, where it takes 0.95 to 0.97 of the time. Decides no bits.
std::int64_t chunk_bytes() {
  constexpr std::int64_t least = std::int64_t{512} << 10U, most = 2 * least;
#if defined(_SC_LEVEL2_CACHE_SIZE)
  return std::clamp<std::int64_t>(sysconf(_SC_LEVEL2_CACHE_SIZE) / 2, least, most);
#else
  return least;
#endif
}

/// A panel of A fits into the first-level cache beside passing lines of B; rows that are read where
/// they lie need not.
Depth depth_of(const MatmulShape& s, Units kind) {
  return {divided_up(s.k, elements_per_unit(kind)), s.a_transposed ? 384 : 1024};
}

/// How C is cut, by shape alone but for the parts, which decide nothing but the order.
struct Blocking {
  std::int64_t chunk_panels = 0, chunks = 0, chunk_units = 0;
  std::int64_t part_rows = 0, parts = 0;
  /// A's rows are widened, or lie at a distance that a cache maps to few sets.
  bool copies_rows = false;

  Blocking(const MatmulShape& s, const Depth& depth, Units kind, int threads) {
    const std::int64_t panels = divided_up(s.n, panel_columns);
    const std::int64_t panel_units = depth.block_units * panel_columns;
    const auto panel_bytes = panel_units * static_cast<std::int64_t>(sizeof(Unit));
    chunk_panels = std::clamp<std::int64_t>(chunk_bytes() / panel_bytes, 1, panels);
    chunks = divided_up(panels, chunk_panels);
    chunk_panels = divided_up(panels, chunks);  // equal chunks
    chunks = divided_up(panels, chunk_panels);
    chunk_units = chunk_panels * panel_units;
    const std::int64_t wanted = threads == 1 ? 1 : divided_up(std::int64_t{3} * threads, chunks);
    part_rows = rounded_up(divided_up(s.m, wanted), panel_rows);
    parts = divided_up(s.m, part_rows);
    const std::int64_t row_bytes = s.k * element_bytes(kind);
    copies_rows =
        !s.a_transposed && (kind == Units::widened || (row_bytes % 2048 == 0 && row_bytes > 2048));
  }
};

template <Units kind>
class MatmulAvx512 final : public PackedMatmul {
 public:
  MatmulAvx512(device::Device& device, const MatmulShape& shape)
      : PackedMatmul(device, shape, depth_of(shape, kind)),
        blocking_(shape, depth_, kind, threads_),
        thread_units_(
            rounded_up(blocking_.chunk_units + panel_rows * depth_.copied_stride() + lanes, 1024)) {
    scratch_ = device.allocate(static_cast<std::size_t>(thread_units_ * threads_) * sizeof(Unit),
                               "matmul scratch");
  }

 private:
  void multiply(const Operands& operands) const override {
    const std::int64_t tasks = blocking_.chunks * blocking_.parts;
    const int threads = std::min(threads_, omp_get_max_threads());
#pragma omp parallel for schedule(dynamic) num_threads(threads) if (tasks > 1)
    for (std::int64_t task = 0; task < tasks; ++task) {
      Unit* mine = reinterpret_cast<Unit*>(scratch_.data()) + omp_get_thread_num() * thread_units_;
      multiply_task(operands, task / blocking_.parts, task % blocking_.parts, mine);
    }
  }

  TRIREME_AVX512_BF16 void multiply_task(const Operands& operands,
                                         std::int64_t chunk,
                                         std::int64_t part,
                                         Unit* scratch) const {
    const MatmulShape& s = shape_;
    const std::int64_t first_panel = chunk * blocking_.chunk_panels;
    const std::int64_t last_panel =
        std::min(first_panel + blocking_.chunk_panels, divided_up(s.n, panel_columns));
    const std::int64_t panel_units = panel_columns * depth_.block_units;
    for (std::int64_t begin = 0; begin < depth_.units; begin += depth_.block_units) {
      const Range range = depth_.block_from(begin);
      for (std::int64_t panel = first_panel; panel < last_panel; ++panel)
        pack_panel<kind>(scratch + (panel - first_panel) * panel_units, operands, panel, range);
      const std::int64_t first_row = part * blocking_.part_rows;
      const std::int64_t last_row = std::min(first_row + blocking_.part_rows, s.m);
      for (std::int64_t row = first_row; row < last_row; row += panel_rows) {
        const std::int64_t rows = std::min(panel_rows, last_row - row);
        Terms terms = find_terms(operands, row, rows, range, scratch + blocking_.chunk_units);
        for (std::int64_t panel = first_panel; panel < last_panel; ++panel) {
          const std::int64_t place = panel - first_panel;
          terms.ahead = rows_ahead(operands, row + rows, place, last_panel - first_panel, range);
          terms.b = scratch + place * panel_units;
          const Target target = target_of(operands, row, panel, range);
          if (s.a_transposed)
            product_rows<kind, true>(terms, target, rows);
          else
            product_rows<kind, false>(terms, target, rows);
        }
      }
    }
  }

  /// The rows of A from `row` on, where they lie or as a copy in `own`.
  TRIREME_AVX512_BF16 Terms find_terms(const Operands& operands,
                                       std::int64_t row,
                                       std::int64_t rows,
                                       const Range& range,
                                       Unit* own) const {
    const MatmulShape& s = shape_;
    Terms terms;
    terms.units = range.size();
    if (s.a_transposed) {
      pack_a_transposed<kind>(own, {operands.a, s.k, s.m}, row, range.begin, range.end);
      terms.a = own;
      return terms;
    }
    if (blocking_.copies_rows) {
      copy_rows<kind>(own, depth_.copied_stride(), {operands.a, s.m, s.k}, row, rows, range.begin,
                      range.end);
      terms.a = own;
      terms.row_stride = depth_.copied_stride() * static_cast<std::int64_t>(sizeof(Unit));
      return terms;
    }
    constexpr std::int64_t element = element_bytes(kind);
    terms.a = reinterpret_cast<const Unit*>(operands.a + row * s.k * element) + range.begin;
    terms.row_stride = s.k * element;
    if (kind == Units::pairs && s.k % 2 != 0 && range.end == depth_.units) {
      --terms.units;
      terms.half_unit = true;
    }
    return terms;
  }

  /// Of the rows of A from `next` on, the lines that are fetched beside panel `place` of `places`.
  [[nodiscard]] Ahead rows_ahead(const Operands& operands,
                                 std::int64_t next,
                                 std::int64_t place,
                                 std::int64_t places,
                                 const Range& range) const {
    const MatmulShape& s = shape_;
    constexpr std::int64_t element = element_bytes(kind), in_unit = elements_per_unit(kind);
    if (!s.a_transposed) {  // each panel some of the rows, along K
      const std::int64_t share = divided_up(panel_rows, places), first = next + place * share;
      const std::int64_t end = std::min(next + panel_rows, s.m);
      return {.first = operands.a + (first * s.k + range.begin * in_unit) * element,
              .lines = std::clamp<std::int64_t>(end - first, 0, share),
              .step = lanes * in_unit * element,
              .stride = s.k * element};
    }
    const std::int64_t last = std::min(next + panel_rows, s.m) - 1;
    constexpr std::int64_t line = 64;
    if (last < next || last * element / line == (next - 1) * element / line)
      return {};  // it came with the rows before
    const std::int64_t share = divided_up(range.size() * in_unit, places);
    const std::int64_t at_once = divided_up(share, divided_up(range.size(), lanes));
    const std::int64_t first = range.begin * in_unit + place * share;
    return {.first = operands.a + (first * s.m + last) * element,
            .lines = at_once,
            .step = at_once * s.m * element,
            .stride = s.m * element};
  }

  Blocking blocking_;
  std::int64_t thread_units_;  // of scratch
  device::Buffer scratch_;
};

}  // namespace

bool multiplies(const MatmulShape& shape) {
  return has_avx512() && shape.a == shape.b && (shape.c == DType::f32 || shape.c == shape.a) &&
         (shape.a == DType::f32 || shape.a == DType::bf16);
}

bool has_fast_pairs() {
  static const bool has =
      has_avx512() && __builtin_cpu_supports("avx512bf16") && !__builtin_cpu_is("intel");
  return has;
}

std::unique_ptr<Matmul::Implementation> make_matmul(device::Device& device,
                                                    const MatmulShape& shape,
                                                    bool pairs) {
  if (shape.a == DType::f32)
    return std::make_unique<MatmulAvx512<Units::single>>(device, shape);
  if (pairs)
    return std::make_unique<MatmulAvx512<Units::pairs>>(device, shape);
  return std::make_unique<MatmulAvx512<Units::widened>>(device, shape);
}

}  // namespace trireme::ops::cpu::avx512
#else
namespace trireme::ops::cpu::avx512 {

bool multiplies(const MatmulShape& /*shape*/) {
  return false;
}

bool has_fast_pairs() {
  return false;
}

std::unique_ptr<Matmul::Implementation> make_matmul(device::Device& /*device*/,
                                                    const MatmulShape& shape,
                                                    bool /*pairs*/) {
  TRIREME_EXPECT(false, "AVX-512 products of {} on another processor", name(shape.a));
  return nullptr;
}

}  // namespace trireme::ops::cpu::avx512
#endif
