// SPDX-License-Identifier: Apache-2.0
// Loops, from the outside: chunks of C's columns and blocks of K, whose part of B is packed by all
// threads together; then groups of C's rows, which threads take one by one; in a group, panels of B
// by the group's rows, 32 at a time. A group's rows of A stay in the second-level cache while the
// panels pass by, each of which is used for the whole group.
#include "ops/cpu/x86/amx_matmul.hpp"

#include <algorithm>

#include <omp.h>

#include "base/error.hpp"
#include "base/round_up.hpp"

#include "device/buffer.hpp"
#include "device/cpu/cpu_stream.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ops/cpu/loops.hpp"
#include "ops/cpu/x86/amx_block.hpp"

namespace trireme::ops::cpu::amx {
namespace {

using avx512::panel_columns;
using avx512::Stored;
using avx512::Units;

/// Packed columns of B and rows of A, in bytes: shares of the third- and second-level cache.
constexpr std::int64_t chunk_bytes = std::int64_t{4} << 20U, group_bytes = std::int64_t{1} << 20U;
constexpr std::int64_t unit_bytes = sizeof(Unit);
/// The most of C that is likely to be in the caches when it is read next.
constexpr std::int64_t cached_bytes = std::int64_t{4} << 20U;

/// How a product is cut: along K by K alone, elsewhere it decides nothing but the order.
struct Blocking {
  std::int64_t units = 0;        ///< along K
  std::int64_t block_units = 0;  ///< of a block of K, a multiple of 16
  std::int64_t panels = 0, chunk_panels = 0;
  std::int64_t group_rows = 0, groups = 0;
  bool copies_rows = false;  ///< tiles cannot be loaded from where A lies

  Blocking(const MatmulShape& s, int threads) {
    units = divided_up(s.k, 2);
    constexpr std::int64_t most = 1536;
    block_units = rounded_up(divided_up(units, divided_up(units, most)), lanes);
    panels = divided_up(s.n, panel_columns);
    chunk_panels = std::clamp<std::int64_t>(
        chunk_bytes / (block_units * panel_columns * unit_bytes), 1, panels);
    const std::int64_t fitting =
        std::max<std::int64_t>(group_bytes / (block_units * unit_bytes) / block_edge, 1);
    const std::int64_t shared =
        threads == 1 ? fitting : divided_up(divided_up(s.m, block_edge), std::int64_t{3} * threads);
    group_rows = std::min(fitting, shared) * block_edge;
    groups = divided_up(s.m, group_rows);
    copies_rows = s.a_transposed || s.k % (2 * lanes) != 0 || s.m % block_edge != 0;
  }
  [[nodiscard]] std::int64_t blocks() const { return divided_up(units, block_units); }
  [[nodiscard]] std::int64_t panel_units() const { return panel_columns * block_units; }
  /// Rows that are copied lie a cache line further apart.
  [[nodiscard]] std::int64_t copied_stride() const { return block_units + lanes; }
  [[nodiscard]] std::int64_t copied_units() const {
    return copies_rows ? group_rows * copied_stride() : 0;
  }
};

/// Operands of one call.
struct Call {
  const std::byte* a;
  const std::byte* b;
  const std::byte* bias;
  std::byte* c;
};

/// A part of K, in units.
struct Range {
  std::int64_t begin = 0, end = 0;
  [[nodiscard]] std::int64_t size() const { return end - begin; }
  [[nodiscard]] std::int64_t tiled() const { return rounded_up(size(), lanes); }
};

/// Sixteen rows of an A that lies in rows.
TRIREME_AMX void copy_rows(
    Unit* to, std::int64_t stride, const Stored& a, std::int64_t row, const Range& range) {
  for (std::int64_t r = 0; r < tile_rows; ++r)
    for (std::int64_t unit = range.begin; unit < range.end; unit += lanes)
      _mm512_storeu_si512(to + r * stride + unit - range.begin,
                          avx512::load_along<Units::pairs>(a, row + r, unit));
}

class MatmulAmx final : public Matmul::Implementation {
 public:
  MatmulAmx(device::Device& device, const MatmulShape& shape)
      : shape_(shape),
        threads_(omp_get_max_threads()),
        blocking_(shape, threads_),
        thread_units_(rounded_up(blocking_.copied_units(), 1024)),
        around_caches_(!shape.accumulate && shape.n % panel_columns == 0 &&
                       shape.m * shape.n * static_cast<std::int64_t>(size_bytes(shape.c)) >
                           cached_bytes) {
    const std::int64_t all =
        blocking_.chunk_panels * blocking_.panel_units() + thread_units_ * threads_;
    scratch_ = device.allocate(static_cast<std::size_t>(all * unit_bytes), "matmul scratch");
    if (shape.c == DType::bf16 && blocking_.blocks() > 1)
      sums_ = device.allocate(static_cast<std::size_t>(shape.m * shape.n) * sizeof(float),
                              "matmul sums");
  }

  void run(const std::byte* a,
           const std::byte* b,
           const std::byte* bias,
           std::byte* c,
           device::Stream& stream) override {
    const Call call{a, b, bias, c};
    device::cpu::stream_of(stream).run([this, call] { multiply(call); });
  }

 private:
  void multiply(const Call& call) const {
    const Blocking& cut = blocking_;
    const int threads = std::min(threads_, omp_get_max_threads());
    auto* panels = reinterpret_cast<Unit*>(scratch_.data());
    Unit* rows = panels + cut.chunk_panels * cut.panel_units();
#pragma omp parallel num_threads(threads) if (threads > 1)
    for (std::int64_t first = 0; first < cut.panels; first += cut.chunk_panels)
      for (std::int64_t begin = 0; begin < cut.units; begin += cut.block_units) {
        const Range range{begin, std::min(begin + cut.block_units, cut.units)};
        const std::int64_t last = std::min(first + cut.chunk_panels, cut.panels);
#pragma omp for schedule(static)
        for (std::int64_t panel = first; panel < last; ++panel)
          pack_panel(panels + (panel - first) * cut.panel_units(), call, panel, range);
#pragma omp for schedule(dynamic)
        for (std::int64_t group = 0; group < cut.groups; ++group)
          multiply_group(call, group, first, last, range, panels,
                         rows + omp_get_thread_num() * thread_units_);
      }
  }

  TRIREME_AMX void pack_panel(Unit* to,
                              const Call& call,
                              std::int64_t panel,
                              const Range& range) const {
    const MatmulShape& s = shape_;
    if (s.b_transposed)
      avx512::pack_b_transposed<Units::pairs>(to, {call.b, s.n, s.k}, panel * panel_columns,
                                              range.begin, range.end);
    else
      avx512::pack_b<Units::pairs>(to, {call.b, s.k, s.n}, panel * panel_columns, range.begin,
                                   range.end);
    std::fill(to + range.size() * panel_columns, to + range.tiled() * panel_columns, Unit{0});
  }

  TRIREME_AMX void multiply_group(const Call& call,
                                  std::int64_t group,
                                  std::int64_t first_panel,
                                  std::int64_t last_panel,
                                  const Range& range,
                                  const Unit* panels,
                                  Unit* own) const {
    const MatmulShape& s = shape_;
    const std::int64_t first_row = group * blocking_.group_rows;
    const std::int64_t last_row = std::min(first_row + blocking_.group_rows, s.m);
    const Unit* a = reinterpret_cast<const Unit*>(call.a + 2 * first_row * s.k) + range.begin;
    std::int64_t row_bytes = 2 * s.k;
    if (blocking_.copies_rows) {
      const std::int64_t stride = blocking_.copied_stride();
      for (std::int64_t row = first_row; row < last_row; row += block_edge)
        for (std::int64_t half = 0; half < block_edge; half += tile_rows) {
          Unit* to = own + (row + half - first_row) * stride;
          if (s.a_transposed)
            avx512::pack_rows(to, stride, {call.a, s.k, s.m}, row + half, range.begin, range.end);
          else
            copy_rows(to, stride, {call.a, s.m, s.k}, row + half, range);
        }
      a = own;
      row_bytes = stride * unit_bytes;
    }
    stored();
    const Tiles tiles;
    for (std::int64_t panel = first_panel; panel < last_panel; ++panel) {
      const Unit* b = panels + (panel - first_panel) * blocking_.panel_units();
      Lines next;
      if (panel + 1 < last_panel) {
        next.next = reinterpret_cast<const std::byte*>(b + blocking_.panel_units());
        next.end = next.next + range.tiled() * panel_columns * unit_bytes;
      }
      for (std::int64_t row = first_row; row < last_row; row += block_edge) {
        const BlockTarget target = target_of(call, row, last_row, panel, range);
        multiply_block(a + (row - first_row) * (row_bytes / unit_bytes), row_bytes, b,
                       range.tiled(), target, next);
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
                          Errands(target, units / lanes, next_panel));
    if (target.around_caches)
      store_block<true>(sums, target);
    else
      store_block<false>(sums, target);
  }

  [[nodiscard]] BlockTarget target_of(const Call& call,
                                      std::int64_t row,
                                      std::int64_t last_row,
                                      std::int64_t panel,
                                      const Range& range) const {
    const MatmulShape& s = shape_;
    const std::int64_t column = panel * panel_columns, at = row * s.n + column;
    const bool last = range.end == blocking_.units, through_sums = sums_.bytes() > 0;
    BlockTarget target;
    target.rows = std::min(block_edge, last_row - row);
    target.columns = std::min(panel_columns, s.n - column);
    target.c_stride = target.addend_stride = s.n;
    float* sums = reinterpret_cast<float*>(through_sums ? sums_.data() : call.c) + at;
    if (range.begin > 0 || s.accumulate)
      target.addend = sums;
    target.c_is_bf16 = s.c == DType::bf16 && last;
    target.c = through_sums && !last ? reinterpret_cast<std::byte*>(sums)
                                     : call.c + at * static_cast<std::int64_t>(size_bytes(s.c));
    if (s.bias && last) {
      target.bias = call.bias + 2 * column;
      target.bias_is_bf16 = true;
    }
    target.around_caches =
        around_caches_ && last && reinterpret_cast<std::uintptr_t>(target.c) % 64 == 0;
    return target;
  }

  MatmulShape shape_;
  int threads_;  // at construction; more are not used
  Blocking blocking_;
  std::int64_t thread_units_;  // of copied rows
  bool around_caches_;         // C, where it is aligned
  device::Buffer scratch_;     // packed columns of B, then each thread's rows of A
  device::Buffer sums_;        // where bf16 results are added up over blocks of K
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

std::unique_ptr<Matmul::Implementation> make_matmul(device::Device& device,
                                                    const MatmulShape& shape) {
  return std::make_unique<MatmulAmx>(device, shape);
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

std::unique_ptr<Matmul::Implementation> make_matmul(device::Device& /*device*/,
                                                    const MatmulShape& shape) {
  TRIREME_EXPECT(false, "AMX products of {} on another processor", name(shape.a));
  return nullptr;
}

}  // namespace trireme::ops::cpu::amx
#endif
