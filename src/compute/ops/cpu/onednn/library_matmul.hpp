// SPDX-License-Identifier: Apache-2.0
// A whole product as one call of the CPU's matrix library, for comparison with Matmul: what the
// library reaches when nothing is cut, fused or shared out by us. Training does not use it.
#pragma once

#include <functional>
#include <string>

#include "base/view.hpp"
#include "device/device.hpp"

#include "ops/matmul.hpp"

namespace trireme::ops {

/// Whether this build has oneDNN, and that a kernel of this dtype here: of bf16 it has one for
/// processors with AVX-512.
bool library_multiplies(DType dtype);

struct LibraryMatmul {
  /// Views are as Matmul's. Blocks, on the threads that OpenMP had at construction.
  std::function<void(ConstView a, ConstView bias, View c)> multiply;
  std::string kernel;  ///< "brg:avx512_core_amx_bf16": the library's name for what it does
};

/// The product of any A with this `b`. `packed` lets the library choose B's layout, into which it
/// is copied: weights could be kept like that from one optimizer step to the next, activations
/// could not. Throws DeviceError when the library cannot multiply this, or the device is not a CPU.
LibraryMatmul make_library_matmul(device::Device& device,
                                  const MatmulShape& shape,
                                  bool packed,
                                  ConstView b);

}  // namespace trireme::ops
