// SPDX-License-Identifier: Apache-2.0
// In place of library_matmul.cpp in builds with TRIREME_ONEDNN=OFF.
#include "base/error.hpp"

#include "ops/cpu/onednn/library_matmul.hpp"

namespace trireme::ops {

bool library_multiplies(DType /*dtype*/) {
  return false;
}

const char* onednn_version() {
  return "not in this build";
}

LibraryMatmul make_library_matmul(device::Device& /*device*/,
                                  const MatmulShape& /*shape*/,
                                  bool /*packed*/,
                                  ConstView /*b*/) {
  throw DeviceError("cpu", "oneDNN", "it is not in this build (TRIREME_ONEDNN=OFF)");
}

}  // namespace trireme::ops
