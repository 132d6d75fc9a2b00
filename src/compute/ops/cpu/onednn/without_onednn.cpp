// SPDX-License-Identifier: Apache-2.0
// In place of library_matmul.cpp in builds with TRIREME_ONEDNN=OFF.
#include "base/error.hpp"

#include "ops/cpu/onednn/library_matmul.hpp"
#include "ops/matmul_backend.hpp"

namespace trireme::ops {

bool library_multiplies(DType /*dtype*/) {
  return false;
}

const char* onednn_version() {
  return "not in this build";
}

struct LibraryMatmul::Inside {};

LibraryMatmul::LibraryMatmul(device::Device& /*device*/,
                             const MatmulShape& /*shape*/,
                             bool /*packed*/) {
  throw DeviceError("cpu", "oneDNN", "it is not in this build (TRIREME_ONEDNN=OFF)", __FILE__,
                    __LINE__);
}
LibraryMatmul::~LibraryMatmul() = default;
void LibraryMatmul::prepare(ConstView /*b*/) {}
void LibraryMatmul::operator()(ConstView /*a*/, ConstView /*bias*/, View /*c*/) const {}
const char* LibraryMatmul::kernel() const {
  return "";
}

}  // namespace trireme::ops
