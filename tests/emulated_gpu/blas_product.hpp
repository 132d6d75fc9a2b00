// SPDX-License-Identifier: Apache-2.0
// The arithmetic of the stand-in for cuBLASLt: one product with its epilogue, on addresses.
//
// 1. Sums are fp32: blocks of 256 terms in order, then the blocks in order. With two splits, the
//    two halves of k are summed separately and then added, as split-k through a workspace does.
// 2. Bias, GELU and its gradient use the sums before these are rounded to D's type. The auxiliary
//    matrix is rounded to D's type. GELU is the tanh form.
// 3. C is read only if beta is not zero, so D may hold anything before, NaN included. Source:
//    cuBLAS user guide, cublasLtMatmul ("if beta == 0, C does not have to be a valid input").
// 4. Compiled with optimization and without sanitizers. Instead it asks the address sanitizer once
//    per column of every matrix whether that memory is accessible.
#pragma once

#include <cstdint>

#include <cublasLt.h>

#include "emulated_gpu/blas_descriptors.hpp"

namespace emulated::blas {

/// A matrix of cuBLASLt's caller, or a vector with one column.
struct Matrix {
  void* data = nullptr;
  cudaDataType_t type{};
  std::int64_t rows = 0, columns = 0, leading = 0;
};

struct Product {
  Matrix a, b, c, d;
  bool transposes_a = false, transposes_b = false;
  float alpha = 1, beta = 0;
  std::uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  Matrix bias, auxiliary;
  int splits = 1;
  float* workspace = nullptr;  // rows · columns · splits of D, with several splits
};

/// Runs on the GPU's thread. Prints a message and aborts if memory must not be accessed.
void multiply(const Product& product);

}  // namespace emulated::blas
