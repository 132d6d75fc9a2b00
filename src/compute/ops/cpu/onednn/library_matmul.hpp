// SPDX-License-Identifier: Apache-2.0
// A whole product as one call of the CPU's matrix library, for comparison with Matmul: what the
// library reaches when nothing is cut, fused or shared out by us. Training does not use it.
//
// 1. It runs on the threads that OpenMP has at construction, shared out by the library.
// 2. `packed` lets the library choose B's layout; prepare() brings B into it. Weights could be kept
//    like that from one optimizer step to the next, activations could not.
#pragma once

#include <memory>

#include "base/view.hpp"
#include "device/device.hpp"

#include "ops/matmul.hpp"

namespace trireme::ops {

/// Whether this build has oneDNN, and that a kernel of this dtype here: of bf16 it has one for
/// processors with AVX-512.
bool library_multiplies(DType dtype);

class LibraryMatmul {
 public:
  /// Throws DeviceError when the library cannot multiply this, or the device is not a CPU.
  LibraryMatmul(device::Device& device, const MatmulShape& shape, bool packed);
  ~LibraryMatmul();
  LibraryMatmul(const LibraryMatmul&) = delete;
  LibraryMatmul& operator=(const LibraryMatmul&) = delete;

  /// `b` stays where it is, or is copied into the library's layout.
  void prepare(ConstView b);
  /// Requires prepare(); views as Matmul's. Blocks.
  void operator()(ConstView a, ConstView bias, View c) const;
  /// "brg:avx512_core_amx_bf16": the library's name for what it does.
  [[nodiscard]] const char* kernel() const;

 private:
  struct Inside;
  std::unique_ptr<Inside> inside_;
};

}  // namespace trireme::ops
