// SPDX-License-Identifier: Apache-2.0
// The devices and dtypes that the operations are tested on, each with its tolerances.
//
// What is missing on this machine is a printed skip. With TRIREME_REQUIRE_CUDA=1 in the
// environment a missing CUDA device is a failure instead: a case that cannot run appears in the
// list, and its tests fail.
#pragma once

#include <cstdio>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/dtype.hpp"
#include "base/error.hpp"
#include "device/device.hpp"

#include "ops/matmul.hpp"

#include "support/gpu.hpp"

namespace trireme::test {

/// Largest allowed error divided by the largest reference value of the tensor. fp32: a few
/// roundings of 2^-24, times the square root of the sums' lengths in these tests. bf16: results
/// are rounded once to 2^-9, inputs of a second stage once more.
struct Tolerances {
  double matmul, layer_norm, elementwise, embedding, attention, cross_entropy, adamw;
};
inline constexpr Tolerances fp32_tolerances{2e-6, 5e-6, 1e-6, 1e-6, 5e-6, 2e-6, 2e-6};
inline constexpr Tolerances bf16_tolerances{4e-3, 1e-2, 4e-3, 4e-3, 2e-2, 4e-3, 4e-3};

struct Backend {
  std::string name{};
  device::Kind kind = device::Kind::cpu;
  DType dtype = DType::f32;
  Tolerances tolerance = fp32_tolerances;
  bool available = true;  ///< false only when it is required and missing
};

inline void PrintTo(const Backend& backend, std::ostream* out) {  // NOLINT: GoogleTest's name
  *out << backend.name;
}

inline std::unique_ptr<device::Device> make_device(const Backend& backend, int threads) {
  if (!backend.available)
    throw DeviceError(backend.name, "make_device", "required by TRIREME_REQUIRE_CUDA, but missing",
                      __FILE__, __LINE__);
  return backend.kind == device::Kind::cpu ? device::make_cpu_device(threads)
                                           : device::make_cuda_device(0);
}

inline std::vector<Backend> find_backends() {
  std::vector<Backend> found{{"cpu_fp32", device::Kind::cpu, DType::f32, fp32_tolerances},
                             {"cpu_bf16", device::Kind::cpu, DType::bf16, bf16_tolerances}};

  const bool available = why_no_gpu().empty();
  if (available || gpu_is_required()) {
    found.push_back({"cuda_fp32", device::Kind::cuda, DType::f32, fp32_tolerances, available});
    found.push_back({"cuda_bf16", device::Kind::cuda, DType::bf16, bf16_tolerances, available});
  } else {
    std::printf("[ SKIPPED  ] cuda: %s\n", why_no_gpu().c_str());
  }
  return found;
}

/// Looked for once, so that a skip is printed once.
inline const std::vector<Backend>& backends() {
  static const auto found = find_backends();
  return found;
}

inline std::string backend_name(const testing::TestParamInfo<Backend>& info) {
  return info.param.name;
}

}  // namespace trireme::test

/// Runs every TEST_P of `suite` on every backend.
#define TRIREME_ON_BACKENDS(suite)                                                            \
  INSTANTIATE_TEST_SUITE_P(Backends, suite, ::testing::ValuesIn(::trireme::test::backends()), \
                           ::trireme::test::backend_name)
