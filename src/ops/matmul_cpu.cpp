// SPDX-License-Identifier: Apache-2.0
#include <dnnl.h>
#include <dnnl.hpp>
#include <fmt/format.h>

#include "ops/avx512_matmul_cpu.hpp"
#include "ops/matmul_backend.hpp"

namespace trireme::ops {
namespace {

bool has_amx() {
  return dnnl::get_effective_cpu_isa() == dnnl::cpu_isa::avx512_core_amx;
}

}  // namespace

// AMX is ten times as fast as vector instructions, and oneDNN knows it. Elsewhere our own kernels
// are at least as fast, need no call per piece, and give a row the same bits in any batch.
bool rows_are_independent(const device::Device& device, const MatmulShape& shape) {
  const bool amx = shape.a == DType::bf16 && has_amx();
  return device.kind() == device::Kind::cpu && !amx && cpu::avx512::multiplies(shape);
}

std::unique_ptr<Matmul::Implementation> make_matmul_cpu(device::Device& device,
                                                        const MatmulShape& shape) {
  if (rows_are_independent(device, shape))
    return cpu::avx512::make_matmul(device, shape);
  return make_onednn_matmul(device, shape);
}

bool has_fast_bf16(const device::Device& device) {
  return device.kind() == device::Kind::cuda || has_amx();
}

const char* matrix_library_version() {
  static const std::string text = [] {
    const auto* version = dnnl_version();
    return fmt::format("oneDNN {}.{}.{}", version->major, version->minor, version->patch);
  }();
  return text.c_str();
}

}  // namespace trireme::ops
