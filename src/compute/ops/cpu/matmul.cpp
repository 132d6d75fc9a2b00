// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "base/error.hpp"

#include "ops/cpu/vector_matmul.hpp"
#include "ops/cpu/x86/amx_matmul.hpp"
#include "ops/matmul_backend.hpp"

namespace trireme::ops {

std::unique_ptr<Matmul::Implementation> make_matmul_cpu(const MatmulShape& shape) {
  if (shape.a != shape.b)
    throw DeviceError("cpu", fmt::format("matmul {} x {}", name(shape.a), name(shape.b)),
                      "both must have the same dtype");
#if defined(__x86_64__)
  if (cpu::amx::multiplies(shape))
    return cpu::amx::make_matmul(shape);
#endif
  return cpu::vectors::make_matmul(shape);
}

bool has_fast_bf16(const device::Device& device) {
  return device.kind() == device::Kind::cuda || cpu::amx::available() ||
         cpu::vectors::has_fast_pairs();
}

std::string product_library(const device::Device& device) {
  return device.kind() == device::Kind::cuda ? "cuBLASLt" : "trireme";
}

}  // namespace trireme::ops
