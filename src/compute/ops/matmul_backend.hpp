// SPDX-License-Identifier: Apache-2.0
// Implementations of Matmul, one class per backend: our kernels on a CPU (cpu/matmul.cpp chooses,
// cpu/README.md has the table), cuBLASLt on a GPU. What is decided for a shape (blocking,
// algorithm, scratch) is decided in their constructors.
#pragma once

#include <memory>

#include "ops/matmul.hpp"

namespace trireme::ops {

struct Matmul::Implementation {
  virtual ~Implementation() = default;
  /// Sizes and dtypes are checked; `bias` is null without bias.
  virtual void run(const std::byte* a,
                   const std::byte* b,
                   const std::byte* bias,
                   std::byte* c,
                   device::Stream& stream) = 0;
  /// Whether run_epilogue() may do something.
  [[nodiscard]] virtual bool fuses_epilogue() const { return false; }
  /// The product with the shape's epilogue; false, and nothing to be seen, where run_apart() has to
  /// do or does better.
  virtual bool run_epilogue(const std::byte* /*a*/,
                            const std::byte* /*b*/,
                            const std::byte* /*bias*/,
                            std::byte* /*z*/,
                            std::byte* /*c*/,
                            device::Stream& /*stream*/) {
    return false;
  }
  /// Whether run_row_sums() may do something.
  [[nodiscard]] virtual bool sums_rows() const { return false; }
  /// run(), and the sums of A's rows; false, and nothing to be seen, where BiasBackward has to
  /// do the latter or does better.
  virtual bool run_row_sums(const std::byte* /*a*/,
                            const std::byte* /*b*/,
                            std::byte* /*c*/,
                            View /*sums*/,
                            device::Stream& /*stream*/) {
    return false;
  }
  /// run() and a GELU of its own, for a shape with an epilogue.
  void run_apart(const MatmulShape& shape,
                 const std::byte* a,
                 const std::byte* b,
                 const std::byte* bias,
                 std::byte* z,
                 std::byte* c,
                 device::Stream& stream);
};

std::unique_ptr<Matmul::Implementation> make_matmul_cpu(const MatmulShape& shape);
/// In builds with CUDA.
std::unique_ptr<Matmul::Implementation> make_matmul_cuda(device::Device& device,
                                                         const MatmulShape& shape,
                                                         const ProductOptions& options);

}  // namespace trireme::ops
