// SPDX-License-Identifier: Apache-2.0
// In place of onednn_matmul.cpp and library_matmul.cpp in builds with TRIREME_ONEDNN=OFF.
#include "base/error.hpp"

#include "ops/cpu/onednn/library_matmul.hpp"
#include "ops/matmul_backend.hpp"

namespace trireme::ops {
namespace {

[[noreturn]] void refuse(const char* what, const char* reason) {
  throw DeviceError("cpu", what, reason, __FILE__, __LINE__);
}

}  // namespace

bool has_onednn() {
  return false;
}

const char* onednn_version() {
  return "not in this build";
}

std::unique_ptr<Matmul::Implementation> make_onednn_matmul(device::Device& /*device*/,
                                                           const MatmulShape& /*shape*/) {
  refuse("matmul",
         "this processor has no AVX-512, and this build no oneDNN (TRIREME_ONEDNN=OFF), which "
         "would multiply without it");
}

struct LibraryMatmul::Inside {};

LibraryMatmul::LibraryMatmul(device::Device& /*device*/,
                             const MatmulShape& /*shape*/,
                             bool /*packed*/) {
  refuse("oneDNN", "it is not in this build (TRIREME_ONEDNN=OFF)");
}
LibraryMatmul::~LibraryMatmul() = default;
void LibraryMatmul::prepare(ConstView /*b*/) {}
void LibraryMatmul::operator()(ConstView /*a*/, ConstView /*bias*/, View /*c*/) const {}
const char* LibraryMatmul::kernel() const {
  return "";
}

}  // namespace trireme::ops
