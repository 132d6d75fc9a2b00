// SPDX-License-Identifier: Apache-2.0
// A whole product as one call of the CPU's matrix library, to compare with Matmul: the speed of the
// library without our tiling, fusion or scheduling. Training does not use it.
#pragma once

#include <functional>
#include <string>

#include "base/view.hpp"
#include "device/device.hpp"

#include "ops/matmul.hpp"

namespace trireme::ops {

/// Whether this build has oneDNN, with a kernel for this dtype on this processor. Its bf16 kernel
/// requires AVX-512.
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
