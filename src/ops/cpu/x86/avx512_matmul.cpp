// SPDX-License-Identifier: Apache-2.0
// Loops, from the outside: tasks (a chunk of C's columns, a part of its rows), blocks of K, rows of
// A by twelve, panels of B by 32 columns. Source of the scheme: Goto, van de Geijn, "Anatomy of
// high-performance matrix multiplication", 2008.
#include "ops/cpu/x86/avx512_matmul.hpp"

#include <algorithm>

#include <omp.h>
#include <unistd.h>

#include "base/error.hpp"
#include "base/round_up.hpp"

#include "device/buffer.hpp"
#include "device/cpu/cpu_stream.hpp"

#if defined(__x86_64__)
#include "ops/cpu/loops.hpp"
#include "ops/cpu/x86/avx512_block.hpp"

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

/// How a product is cut, by shape alone but for the parts, which decide nothing but the order.
struct Blocking {
  std::int64_t units = 0;        ///< along K
  std::int64_t block_units = 0;  ///< of a block of K
  std::int64_t chunk_panels = 0, chunks = 0;
  std::int64_t part_rows = 0, parts = 0;
  /// A's rows are widened, or lie at a distance that a cache maps to few sets.
  bool copies_rows = false;

  Blocking(const MatmulShape& s, Units kind, int threads) {
    units = divided_up(s.k, elements_per_unit(kind));
    // A panel of A fits into the first-level cache beside passing lines of B; rows that are read
    // where they lie need not.
    const std::int64_t most = s.a_transposed ? 384 : 1024;
    block_units = rounded_up(divided_up(units, divided_up(units, most)), lanes);
    const std::int64_t panels = divided_up(s.n, panel_columns);
    const auto panel_bytes = block_units * panel_columns * static_cast<std::int64_t>(sizeof(Unit));
    chunk_panels = std::clamp<std::int64_t>(chunk_bytes() / panel_bytes, 1, panels);
    chunks = divided_up(panels, chunk_panels);
    chunk_panels = divided_up(panels, chunks);  // equal chunks
    chunks = divided_up(panels, chunk_panels);
    const std::int64_t wanted = threads == 1 ? 1 : divided_up(std::int64_t{3} * threads, chunks);
    part_rows = rounded_up(divided_up(s.m, wanted), panel_rows);
    parts = divided_up(s.m, part_rows);
    const std::int64_t row_bytes = s.k * element_bytes(kind);
    copies_rows =
        !s.a_transposed && (kind == Units::widened || (row_bytes % 2048 == 0 && row_bytes > 2048));
  }
  [[nodiscard]] std::int64_t blocks() const { return divided_up(units, block_units); }
  [[nodiscard]] std::int64_t chunk_units() const {
    return chunk_panels * panel_columns * block_units;
  }
  /// Rows that are copied lie a cache line further apart.
  [[nodiscard]] std::int64_t copied_stride() const { return block_units + lanes; }
  [[nodiscard]] std::int64_t rows_units() const { return panel_rows * copied_stride() + lanes; }
};

/// Operands of one call.
struct Call {
  const std::byte* a;
  const std::byte* b;
  const std::byte* bias;
  std::byte* c;
};

template <Units kind>
class MatmulAvx512 final : public Matmul::Implementation {
 public:
  MatmulAvx512(device::Device& device, const MatmulShape& shape)
      : shape_(shape),
        threads_(omp_get_max_threads()),
        blocking_(shape, kind, threads_),
        thread_units_(rounded_up(blocking_.chunk_units() + blocking_.rows_units(), 1024)) {
    scratch_ = device.allocate(static_cast<std::size_t>(thread_units_ * threads_) * sizeof(Unit),
                               "matmul scratch");
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
    const std::int64_t tasks = blocking_.chunks * blocking_.parts;
    const int threads = std::min(threads_, omp_get_max_threads());
#pragma omp parallel for schedule(dynamic) num_threads(threads) if (tasks > 1)
    for (std::int64_t task = 0; task < tasks; ++task) {
      Unit* mine = reinterpret_cast<Unit*>(scratch_.data()) + omp_get_thread_num() * thread_units_;
      multiply_task(call, task / blocking_.parts, task % blocking_.parts, mine);
    }
  }

  TRIREME_AVX512_BF16 void multiply_task(const Call& call,
                                         std::int64_t chunk,
                                         std::int64_t part,
                                         Unit* scratch) const {
    const MatmulShape& s = shape_;
    const std::int64_t first_panel = chunk * blocking_.chunk_panels;
    const std::int64_t last_panel =
        std::min(first_panel + blocking_.chunk_panels, divided_up(s.n, panel_columns));
    const Stored b = s.b_transposed ? Stored{call.b, s.n, s.k} : Stored{call.b, s.k, s.n};
    for (std::int64_t begin = 0; begin < blocking_.units; begin += blocking_.block_units) {
      const std::int64_t end = std::min(begin + blocking_.block_units, blocking_.units);
      for (std::int64_t panel = first_panel; panel < last_panel; ++panel) {
        Unit* to = scratch + (panel - first_panel) * panel_columns * blocking_.block_units;
        if (s.b_transposed)
          pack_b_transposed<kind>(to, b, panel * panel_columns, begin, end);
        else
          pack_b<kind>(to, b, panel * panel_columns, begin, end);
      }
      const std::int64_t first_row = part * blocking_.part_rows;
      const std::int64_t last_row = std::min(first_row + blocking_.part_rows, s.m);
      for (std::int64_t row = first_row; row < last_row; row += panel_rows) {
        const std::int64_t rows = std::min(panel_rows, last_row - row);
        Unit* own = scratch + blocking_.chunk_units();
        Terms terms = find_terms(call, row, rows, begin, end, own);
        for (std::int64_t panel = first_panel; panel < last_panel; ++panel) {
          terms.ahead = rows_ahead(call, row + rows, panel - first_panel, last_panel - first_panel,
                                   begin, end - begin);
          multiply_block(call, terms, scratch, row, rows, panel, panel - first_panel, begin, end);
        }
      }
    }
  }

  /// The rows of A from `row` on, where they lie or as a copy in `own`.
  TRIREME_AVX512_BF16 Terms find_terms(const Call& call,
                                       std::int64_t row,
                                       std::int64_t rows,
                                       std::int64_t begin,
                                       std::int64_t end,
                                       Unit* own) const {
    const MatmulShape& s = shape_;
    Terms terms;
    terms.units = end - begin;
    if (s.a_transposed) {
      pack_a_transposed<kind>(own, {call.a, s.k, s.m}, row, begin, end);
      terms.a = own;
      return terms;
    }
    if (blocking_.copies_rows) {
      const Stored a{call.a, s.m, s.k};
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t u = begin; u < end; u += lanes)
          _mm512_storeu_si512(own + r * blocking_.copied_stride() + u - begin,
                              load_along<kind>(a, row + r, u));
      terms.a = own;
      terms.row_stride = blocking_.copied_stride() * static_cast<std::int64_t>(sizeof(Unit));
      return terms;
    }
    constexpr std::int64_t element = element_bytes(kind);
    terms.a = reinterpret_cast<const Unit*>(call.a + row * s.k * element) + begin;
    terms.row_stride = s.k * element;
    if (kind == Units::pairs && s.k % 2 != 0 && end == blocking_.units) {
      --terms.units;
      terms.half_unit = true;
    }
    return terms;
  }

  /// Of the rows of A from `next` on, the lines that are fetched beside panel `place` of `places`.
  [[nodiscard]] Ahead rows_ahead(const Call& call,
                                 std::int64_t next,
                                 std::int64_t place,
                                 std::int64_t places,
                                 std::int64_t begin,
                                 std::int64_t units) const {
    const MatmulShape& s = shape_;
    constexpr std::int64_t element = element_bytes(kind), in_unit = elements_per_unit(kind);
    if (!s.a_transposed) {  // each panel some of the rows, along K
      const std::int64_t share = divided_up(panel_rows, places), first = next + place * share;
      const std::int64_t end = std::min(next + panel_rows, s.m);
      return {.first = call.a + (first * s.k + begin * in_unit) * element,
              .lines = std::clamp<std::int64_t>(end - first, 0, share),
              .step = lanes * in_unit * element,
              .stride = s.k * element};
    }
    const std::int64_t last = std::min(next + panel_rows, s.m) - 1;
    constexpr std::int64_t line = 64;
    if (last < next || last * element / line == (next - 1) * element / line)
      return {};  // it came with the rows before
    const std::int64_t share = divided_up(units * in_unit, places);
    const std::int64_t at_once = divided_up(share, divided_up(units, lanes));
    const std::int64_t first = begin * in_unit + place * share;
    return {.first = call.a + (first * s.m + last) * element,
            .lines = at_once,
            .step = at_once * s.m * element,
            .stride = s.m * element};
  }

  TRIREME_AVX512_BF16 void multiply_block(const Call& call,
                                          Terms terms,
                                          const Unit* panels,
                                          std::int64_t row,
                                          std::int64_t rows,
                                          std::int64_t panel,
                                          std::int64_t place,
                                          std::int64_t begin,
                                          std::int64_t end) const {
    const MatmulShape& s = shape_;
    terms.b = panels + place * panel_columns * blocking_.block_units;
    const std::int64_t column = panel * panel_columns, at = row * s.n + column;
    const bool last = end == blocking_.units;
    Target target;
    target.columns = std::min(panel_columns, s.n - column);
    target.c_stride = target.addend_stride = s.n;
    const bool through_sums = sums_.bytes() > 0;
    float* sums = reinterpret_cast<float*>(through_sums ? sums_.data() : call.c) + at;
    if (begin > 0 || s.accumulate)
      target.addend = sums;
    target.c_is_bf16 = s.c == DType::bf16 && last;
    target.c = through_sums && !last ? reinterpret_cast<std::byte*>(sums)
                                     : call.c + at * static_cast<std::int64_t>(size_bytes(s.c));
    if (s.bias && last) {
      target.bias = call.bias + column * static_cast<std::int64_t>(size_bytes(s.b));
      target.bias_is_bf16 = s.b == DType::bf16;
    }
    if (s.a_transposed)
      product_rows<kind, true>(terms, target, rows);
    else
      product_rows<kind, false>(terms, target, rows);
  }

  MatmulShape shape_;
  int threads_;  // at construction; more are not used
  Blocking blocking_;
  std::int64_t thread_units_;  // of scratch
  device::Buffer scratch_;
  device::Buffer sums_;  // where bf16 results are added up over blocks of K
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
