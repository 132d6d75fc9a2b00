// SPDX-License-Identifier: Apache-2.0
// Timed products must keep the fastest variant. The emulated GPU's clock can be set, and the number
// of launches shows which variant was used.
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "ops/matmul.hpp"

#include "emulated_gpu/queue.hpp"
#include "support/gpu.hpp"

namespace trireme::test {
namespace {

constexpr const char* fused = "cublasLtMatmul with GELU";
constexpr const char* kernel = "kernel";

class TimedProductsGpu : public testing::Test {
 protected:
  void SetUp() override { TRIREME_NEEDS_GPU(); }
  void TearDown() override {
    for (const char* what : {fused, kernel}) emulated::charge(what, 0);
  }

  /// Launches of the second call of a product with this epilogue.
  static std::uint64_t launches(ops::Epilogue epilogue, const ops::ProductOptions& options) {
    const auto device = device::make_cuda_device(0);
    const auto stream = device->make_stream(device::StreamMode::inlined, "test");
    const std::int64_t m = 16, n = 24, k = 8;
    const ops::Matmul product(*device,
                              {.m = m,
                               .n = n,
                               .k = k,
                               .a = DType::bf16,
                               .b = DType::bf16,
                               .c = DType::bf16,
                               .bias = epilogue == ops::Epilogue::gelu,
                               .epilogue = epilogue},
                              options);
    const auto memory = [&](std::int64_t elements) {
      return device->allocate(static_cast<std::size_t>(elements) * size_bytes(DType::bf16), "test");
    };
    const auto a = memory(m * k), b = memory(k * n), bias = memory(n), z = memory(m * n),
               c = memory(m * n);
    const auto view = [](const device::Buffer& buffer, std::int64_t elements) {
      return buffer.view(DType::bf16, 0, elements);
    };
    std::uint64_t before = 0;
    for (int call = 0; call < 2; ++call) {
      before = emulated::num_submissions();
      product({.a = view(a, m * k),
               .b = view(b, k * n),
               .bias = view(bias, product.shape().bias ? n : 0),
               .z = view(z, m * n),
               .c = view(c, m * n)},
              *stream);
    }
    stream->synchronize();
    return emulated::num_submissions() - before;
  }
};

TEST_F(TimedProductsGpu, ComputeAGeluApartWhereThatIsFaster) {
  for (const auto epilogue : {ops::Epilogue::gelu, ops::Epilogue::gelu_backward}) {
    emulated::charge(kernel, 0);
    emulated::charge(fused, 100);
    EXPECT_EQ(launches(epilogue, {.timed = true}), 2U);
    EXPECT_EQ(launches(epilogue, {}), 1U) << "nothing is timed";
    emulated::charge(kernel, 200);
    EXPECT_EQ(launches(epilogue, {.timed = true}), 1U);
  }
}

TEST_F(TimedProductsGpu, HaveASwitchForEachDirection) {
  using ops::Epilogue;
  EXPECT_EQ(launches(Epilogue::gelu, {.fused_gelu = false}), 2U);
  EXPECT_EQ(launches(Epilogue::gelu_backward, {.fused_gelu = false}), 1U);
  EXPECT_EQ(launches(Epilogue::gelu, {.fused_gelu_backward = false}), 1U);
  EXPECT_EQ(launches(Epilogue::gelu_backward, {.fused_gelu_backward = false}), 2U);
}

/// For a long sum the emulated library prefers two halves if the workspace has room for them: two
/// fp32 matrices of 16 x 24.
TEST_F(TimedProductsGpu, UseNoMoreWorkspaceThanTheyAreGiven) {
  const auto device = device::make_cuda_device(0);
  const auto stream = device->make_stream(device::StreamMode::inlined, "test");
  const std::int64_t m = 16, n = 24, k = 2048;
  std::vector<float> values(static_cast<std::size_t>(n * k));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = 1 / static_cast<float>(i * 37 % 1009 + 1);
  const auto memory = [&](std::int64_t elements) {
    return device->allocate(static_cast<std::size_t>(elements) * sizeof(float), "test");
  };
  const auto a = memory(m * k), b = memory(k * n), c = memory(m * n);
  device->copy(a.view(DType::f32), view_of(values.data(), m * k), *stream);
  device->copy(b.view(DType::f32), view_of(values.data(), n * k), *stream);
  const auto product = [&](std::size_t workspace_bytes) {
    ops::Matmul(*device, {.m = m, .n = n, .k = k}, {.workspace_bytes = workspace_bytes})(
        {.a = a.view(DType::f32), .b = b.view(DType::f32), .c = c.view(DType::f32)}, *stream);
    std::vector<float> result(static_cast<std::size_t>(m * n));
    device->copy(view_of(result.data(), m * n), c.view(DType::f32), *stream);
    stream->synchronize();
    return result;
  };
  const std::size_t halves = 2 * 4 * 16 * 24;
  EXPECT_NE(product(halves - 1), product(halves));
  EXPECT_EQ(product(halves), product(std::size_t{64} << 20U)) << "the stream's workspace grows";
}

}  // namespace
}  // namespace trireme::test
