// SPDX-License-Identifier: Apache-2.0
// Common parts of all matrix products of trireme on a CPU: operands are packed into panels
// (packed_operands.hpp), K is divided into blocks, and the sums of a block of K are added to those
// of the blocks before.
//
// The loops are in blocked_matmul.hpp, except for AMX: it multiplies so fast that all threads have
// to share the packing of B, with two barriers per block of K (x86/amx_matmul.cpp).
// 1. The division of K changes bits; rows, columns and threads do not.
// 2. A bf16 result over several blocks of K is added up in fp32 in the workspace (`Operands::sums`)
//    and rounded once, with the last block; bias comes with it.
// 3. Packed operands and sums are in the workspace of the stream, which all products share.
#pragma once

#include <algorithm>

#include <omp.h>

#include "base/round_up.hpp"
#include "device/cpu/cpu_stream.hpp"

#include "ops/cpu/packed_operands.hpp"
#include "ops/matmul_backend.hpp"

namespace trireme::ops::cpu {

struct Operands {
  const std::byte* a;
  const std::byte* b;
  const std::byte* bias;
  std::byte* c;
  float* sums;      ///< [M, N], of bf16 results over several blocks of K; else null
  float* row_sums;  ///< [M], of A's rows, added to; null unless requested
};

/// A block of K, in units.
struct Range {
  std::int64_t begin = 0, end = 0;
  [[nodiscard]] std::int64_t size() const { return end - begin; }
};

/// K as equal blocks of up to `most` units, whole lines of 16 each.
struct Depth {
  std::int64_t units = 0, block_units = 0;

  Depth(std::int64_t all_units, std::int64_t most)
      : units(all_units),
        block_units(rounded_up(divided_up(units, divided_up(units, most)), line_units)) {}
  [[nodiscard]] std::int64_t blocks() const { return divided_up(units, block_units); }
  [[nodiscard]] Range block_from(std::int64_t begin) const {
    return {begin, std::min(begin + block_units, units)};
  }
  /// Units between rows of A that are copied: a cache line more than they have.
  [[nodiscard]] std::int64_t copied_stride() const { return block_units + line_units; }
};

/// Operands of a block of `rows` by `columns` that fit the first-level cache with its sums.
template <std::int64_t rows, std::int64_t columns>
struct SmallBlock {
  static constexpr std::int64_t units = 128;
  alignas(64) Unit a[rows * units], b[columns * units];
  alignas(64) float sums[rows * columns];

  /// Numbers in [1, 2) and (-2, -1] with random digits, as fp32 and as pairs of bf16.
  SmallBlock() {
    Unit state = 1;
    const auto random = [&](Unit& to) {
      state = state * 1664525U + 1013904223U;
      to = 0x3f803f80U | (state >> 8U & 0x007fff7fU) | (state & 0x80008000U);
    };
    std::ranges::for_each(a, random);
    std::ranges::for_each(b, random);
  }
  static constexpr double flops(Units kind) {
    return 2.0 * rows * columns * units * static_cast<double>(elements_per_unit(kind));
  }
};

class PackedMatmul : public Matmul::Implementation {
 public:
  void run(const MatmulCall& call, device::Stream& stream) final {
    device::cpu::Stream* on = &device::cpu::stream_of(stream);
    on->run([=, this] {
      device::cpu::Workspace& workspace = on->workspace();
      workspace.reserve(
          {.shared = sum_bytes_ + shared_bytes_, .per_thread = thread_bytes_, .threads = threads_});
      auto* sums = sum_bytes_ > 0 ? reinterpret_cast<float*>(workspace.shared()) : nullptr;
      auto* row_sums = sums_rows() ? reinterpret_cast<float*>(call.row_sums.data) : nullptr;
      multiply({call.a.data, call.b.data, call.bias.data, call.c.data, sums, row_sums}, workspace);
    });
  }
  bool run_row_sums(const MatmulCall& call, device::Stream& stream) final {
    if (sums_rows())
      run(call, stream);
    return sums_rows();
  }

 protected:
  /// Writes the panel of the columns from `column` on, units [begin, end).
  using PackB =
      void(Unit* to, const Stored& b, std::int64_t column, std::int64_t begin, std::int64_t end);

  PackedMatmul(const MatmulShape& shape, const Depth& depth, std::int64_t panel_columns)
      : shape_(shape),
        depth_(depth),
        panel_columns_(panel_columns),
        threads_(omp_get_max_threads()) {
    if (shape.c == DType::bf16 && depth.blocks() > 1)
      sum_bytes_ = rounded_up(shape.m * shape.n * static_cast<std::int64_t>(sizeof(float)), 4096);
  }

  /// Workspace of the product in units, without its sums: shared by all threads, and per thread.
  void set_workspace(std::int64_t shared_units, std::int64_t thread_units) {
    shared_bytes_ = shared_units * static_cast<std::int64_t>(sizeof(Unit));
    thread_bytes_ = thread_units * static_cast<std::int64_t>(sizeof(Unit));
  }
  [[nodiscard]] Unit* shared_units(const device::cpu::Workspace& workspace) const {
    return reinterpret_cast<Unit*>(workspace.shared() + sum_bytes_);
  }
  [[nodiscard]] static Unit* own_units(const device::cpu::Workspace& workspace) {
    return reinterpret_cast<Unit*>(workspace.of_thread(omp_get_thread_num()));
  }

  /// `pack` packs a B stored [K, N], `pack_transposed` one stored [N, K].
  void pack_panel(Unit* to,
                  const Operands& operands,
                  std::int64_t panel,
                  const Range& range,
                  PackB* pack,
                  PackB* pack_transposed) const {
    const std::int64_t column = panel * panel_columns_;
    if (shape_.b_transposed)
      pack_transposed(to, {operands.b, shape_.n, shape_.k}, column, range.begin, range.end);
    else
      pack(to, {operands.b, shape_.k, shape_.n}, column, range.begin, range.end);
  }

  /// The destination of the block of C at this row and panel after the block `range` of K.
  [[nodiscard]] Target target_of(const Operands& operands,
                                 std::int64_t row,
                                 std::int64_t panel,
                                 const Range& range) const {
    const MatmulShape& s = shape_;
    const std::int64_t column = panel * panel_columns_, at = row * s.n + column;
    const bool last = range.end == depth_.units, through_sums = operands.sums != nullptr;
    Target target;
    target.columns = std::min(panel_columns_, s.n - column);
    target.c_stride = target.addend_stride = s.n;
    float* sums = (through_sums ? operands.sums : reinterpret_cast<float*>(operands.c)) + at;
    if (range.begin > 0 || s.accumulate)
      target.addend = sums;
    target.c_is_bf16 = s.c == DType::bf16 && last;
    target.c = through_sums && !last ? reinterpret_cast<std::byte*>(sums)
                                     : operands.c + at * static_cast<std::int64_t>(size_bytes(s.c));
    if (s.bias && last) {
      target.bias = operands.bias + column * static_cast<std::int64_t>(size_bytes(s.b));
      target.bias_is_bf16 = s.b == DType::bf16;
    }
    return target;
  }

  MatmulShape shape_;
  Depth depth_;
  std::int64_t panel_columns_;
  int threads_;  // at construction; more are not used

 private:
  virtual void multiply(const Operands& operands,
                        const device::cpu::Workspace& workspace) const = 0;

  std::int64_t sum_bytes_ = 0, shared_bytes_ = 0, thread_bytes_ = 0;  // of the workspace
};

}  // namespace trireme::ops::cpu
