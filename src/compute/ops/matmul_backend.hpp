// SPDX-License-Identifier: Apache-2.0
// Implementations of Matmul, one class per backend: our kernels on a CPU (cpu/matmul.cpp chooses,
// docs/design/compute.md lists them), cuBLASLt on a GPU. What is decided for a shape (blocking,
// algorithm, scratch) is decided in their constructors.
#pragma once

#include <memory>

#include "ops/matmul.hpp"

namespace trireme::ops {

struct Matmul::Implementation {
  virtual ~Implementation() = default;
  /// The product with its bias, without epilogue. Sizes and dtypes were checked.
  virtual void run(const MatmulCall& call, device::Stream& stream) = 0;
  /// Whether run_epilogue() may return true.
  [[nodiscard]] virtual bool fuses_epilogue() const { return false; }
  /// With the epilogue. Returns false, with nothing done, if run_apart() is required or faster.
  virtual bool run_epilogue(const MatmulCall& /*call*/, device::Stream& /*stream*/) {
    return false;
  }
  /// Whether run_row_sums() may return true.
  [[nodiscard]] virtual bool sums_rows() const { return false; }
  /// run() and row sums. Returns false, with nothing done, if BiasBackward is required or faster.
  virtual bool run_row_sums(const MatmulCall& /*call*/, device::Stream& /*stream*/) {
    return false;
  }
  [[nodiscard]] virtual double run_blocks(std::int64_t /*count*/) const { return 0; }
  /// run() and a separate pass for GELU, for a shape with an epilogue.
  void run_apart(const MatmulShape& shape, const MatmulCall& call, device::Stream& stream);
};

std::unique_ptr<Matmul::Implementation> make_matmul_cpu(const MatmulShape& shape);
/// In builds with CUDA.
std::unique_ptr<Matmul::Implementation> make_matmul_cuda(device::Device& device,
                                                         const MatmulShape& shape,
                                                         const ProductOptions& options);

}  // namespace trireme::ops
