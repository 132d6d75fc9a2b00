// SPDX-License-Identifier: Apache-2.0
// Approximates the orthogonal matrix nearest to a given one: brings the singular values of X [M, N]
// near 1 and keeps its singular vectors, using only matrix products.
//
//   X = X / (f |X| + e), |X| the Frobenius norm;  then in each step, where M <= N,
//   A = X Xt;  P = a I + b A + c A A;  X = P X      (M > N: A = Xt X and X = X P)
//
// newton_schulz: (a, b, c) = (3.4445, -4.7750, 2.0315), f = 1, e = 1e-7. Five steps bring what was
// above 0.003 |X| to between 0.68 and 1.21; they do not converge to 1. Source: Jordan et al.,
// "Muon: an optimizer for hidden layers in neural networks", 2024. polar_express: a triple for each
// step, f = 1.01, e = 1e-6: 0.85 to 1.15. Source: Amsel et al., "The Polar Express", arXiv
// 2505.16932; the triples are those of modded-nanogpt (safety factor 2e-2), f is nanochat's.
// 1. Sums of squares are fp64, all else is fp32. With options.products = bf16, X, A, A A and P are
//    rounded to bf16; the operations between products still compute in fp32. Results then differ
//    between processors by more than the last bits, as all products in bf16 do.
// 2. The division of work depends only on the shape: any number of threads gives the same bits.
// 3. Nothing is allocated after construction; one call at a time per object, whose scratch is the
//    caller's. A zero matrix stays zero.
#pragma once

#include <cstdint>

#include "base/view.hpp"
#include "device/device.hpp"

#include "ops/matmul.hpp"
#include "ops/optimizer/orthogonalize_options.hpp"

namespace trireme::ops {

class Orthogonalize {
 public:
  /// Of matrices [rows, columns]. Requires: at least one of each, options.steps >= 1.
  Orthogonalize(device::Device& device,
                std::int64_t rows,
                std::int64_t columns,
                const OrthogonalizeOptions& options);

  /// Needed by a call in addition to the matrix.
  static std::int64_t scratch_bytes(std::int64_t rows, std::int64_t columns, DType products);
  /// Of a call: steps x (4 max min^2 + 2 min^3), where max and min are of rows and columns.
  static double flops(std::int64_t rows, std::int64_t columns, std::int64_t steps);

  /// Overwrites `matrix` by `scale` times its orthogonal matrix. Shapes: matrix [rows, columns]
  /// fp32; scratch at least scratch_bytes() of u8, aligned to a cache line.
  void operator()(View matrix, View scratch, float scale, device::Stream& stream) const;

 private:
  std::int64_t rows_, columns_, inner_;  // inner_: the smaller one
  OrthogonalizeOptions options_;
  Matmul gram_, square_, apply_;
};

}  // namespace trireme::ops
