// SPDX-License-Identifier: Apache-2.0
// Matrix products. Everything that can be decided beforehand is decided at construction: a layer
// creates one Matmul object per (shape, dtypes, transposes) and calls it every step.
// 1. Matrices are row-major and dense. "Transposed" is how an operand is stored: a_transposed means
//    A is stored as [K, M].
// 2. Arithmetic is fp32 or better, whatever the dtypes; the result is rounded once.
// 3. The division of work depends only on the shape, so results have the same bits on any number of
//    threads. On a CPU, the bits of a row of C do not depend on the other rows or its place among
//    them; a GPU library may sum in another order.
// 4. On a CPU a product owns no memory: it uses the workspace of the stream
//    (device/cpu/workspace.hpp) for as many threads as OpenMP has at construction; later calls use
//    no more. One call at a time per object.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <string>

#include "base/view.hpp"
#include "device/device.hpp"

#include "ops/options.hpp"

namespace trireme::ops {

/// Applied to the sums before they are stored, with a second matrix Z of C's shape and dtype. gelu:
/// Z = A · B + bias and C = gelu(Z). gelu_backward: C = (A · B) · gelu'(Z). If fused with the
/// product, GELU reads the sums before they are rounded to Z's dtype.
enum class Epilogue : std::uint8_t { none, gelu, gelu_backward };

/// C[M, N] = A[M, K] · B[K, N] (+ bias[N]) (+ C)
struct MatmulShape {
  std::int64_t m = 0, n = 0, k = 0;
  bool a_transposed = false;
  bool b_transposed = false;
  DType a = DType::f32, b = DType::f32, c = DType::f32;
  bool bias = false;                   ///< bias[N], of dtype `b`
  bool accumulate = false;             ///< adds to C instead of overwriting it; C is fp32 then
  Epilogue epilogue = Epilogue::none;  ///< not with accumulate
  /// Calls may request row sums. A is then stored transposed, and C accumulates.
  bool row_sums = false;

  auto operator<=>(const MatmulShape&) const = default;
};

/// The operands of one call, dense and in the shape's dtypes.
struct MatmulCall {
  ConstView a;          ///< [M, K]; stored [K, M] where it is transposed
  ConstView b;          ///< [K, N]; stored [N, K] where it is transposed
  ConstView bias = {};  ///< [N]; where the shape has one
  View z = {};          ///< [M, N] of C's dtype; where the shape has an epilogue
  View c;               ///< [M, N]
  /// [M] fp32, added to: the sums of A's rows; in the product for a weight's gradient, its bias
  /// gradient. Optional, only if the shape has row_sums.
  View row_sums = {};
};

class Matmul {
 public:
  /// Throws DeviceError if the device cannot multiply these dtypes.
  Matmul(device::Device& device, const MatmulShape& shape, const ProductOptions& options = {});
  ~Matmul();

  [[nodiscard]] const MatmulShape& shape() const { return shape_; }

  /// Throws ContractError if an operand does not have the shape's size and dtype.
  void operator()(const MatmulCall& call, device::Stream& stream) const;

  /// Whether the epilogue is fused with the product instead of a separate pass. With
  /// ProductOptions::timed, some calls may still use a separate pass.
  [[nodiscard]] bool fuses_epilogue() const;

  /// Whether row sums are part of the product, so that A is read once.
  [[nodiscard]] bool sums_rows() const;

  /// Runs the innermost block of the kernel `count` times on the calling thread, on random operands
  /// in the first-level cache, and returns its FLOP: no product is faster. 0 for a library's kernel.
  [[nodiscard]] double run_blocks(std::int64_t count) const;

  struct Implementation;

 private:
  MatmulShape shape_;
  std::unique_ptr<Implementation> implementation_;
};

/// Whether `device` multiplies bf16 faster than fp32 (tensor cores, AMX, AMD's AVX-512 BF16);
/// `precision: auto` uses it. AMD's AVX-512 BF16 only doubles the rate of fp32 (effect on the loss:
/// docs/results/bf16_loss.csv); Intel's halves it.
bool has_fast_bf16(const device::Device& device);

/// Run-time version of oneDNN, the matrix library that products are compared with: "2.6.3"; "not in
/// this build" without it.
const char* onednn_version();

/// The implementation of products: "trireme" or "cuBLASLt".
std::string product_library(const device::Device& device);

}  // namespace trireme::ops
