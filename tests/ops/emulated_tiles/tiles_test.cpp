// SPDX-License-Identifier: Apache-2.0
// The AMX kernels on emulated tiles: close to this processor's operations, and where it has AMX,
// the same bits as on its tiles.
#include <limits>

#include "ops/attention.hpp"
#include "ops/cpu/x86/amx_matmul.hpp"
#include "ops/emulated_tiles/kernels.hpp"
#include "ops/matmul.hpp"
#include "ops/tensors.hpp"

namespace trireme::test {
namespace {

class EmulatedTilesTest : public OpsTest {
 protected:
  void SetUp() override {
    if (!tiles::can_run_kernels())
      GTEST_SKIP() << "this processor has no AVX-512 BF16";
    OpsTest::SetUp();
  }

  /// `values` in bf16, with numbers of very different magnitudes among them.
  Tensor drawn(std::uint64_t seed, std::int64_t count) {
    auto values = normals(seed, count);
    for (std::size_t i = 0; i < values.size(); i += 97) values[i] *= i % 2 == 0 ? 1e-38 : 300;
    return tensor(DType::bf16, values);
  }

  void expect_same(const Tensor& emulated, const Tensor& real, double allowed, const char* what) {
    if (ops::cpu::amx::available()) {
      EXPECT_TRUE(emulated.bytes() == real.bytes()) << what << " differs from that of AMX";
    }
    expect_near(emulated.values(), real.values(), allowed, what);
  }

  void check_product(ops::MatmulShape s) {
    SCOPED_TRACE(fmt::format("{} x {} x {}, {} {} {}", s.m, s.n, s.k, s.a_transposed,
                             s.b_transposed, s.accumulate));
    s.a = s.b = DType::bf16;
    s.bias = !s.accumulate;
    const auto a = drawn(1, s.m * s.k), b = drawn(2, s.k * s.n), bias = drawn(3, s.n);
    const auto before = normals(4, s.m * s.n), sums_before = normals(5, s.m);
    std::vector<Tensor> c, sums;
    for (int i = 0; i < 2; ++i) {
      c.push_back(tensor(s.c, before));
      sums.push_back(tensor(DType::f32, sums_before));
    }
    const auto call = [&](std::size_t i) {
      return ops::MatmulCall{.a = a.view(),
                             .b = b.view(),
                             .bias = s.bias ? bias.view() : View(),
                             .c = c[i].view(),
                             .row_sums = s.row_sums ? sums[i].view() : View()};
    };
    const auto emulated = tiles::make_matmul(s);
    if (!s.row_sums || !emulated->run_row_sums(call(0), stream()))
      emulated->run(call(0), stream());
    ops::Matmul(device(), s)(call(1), stream());
    expect_same(c[0], c[1], s.c == DType::bf16 ? tolerance().matmul : 2e-6, "C");
    expect_same(sums[0], sums[1], 2e-6, "sums");
  }

  void check_attention(const ops::AttentionShape& s) {
    SCOPED_TRACE(fmt::format("{} positions, {} heads of {} channels, window {}", s.time, s.heads,
                             s.head_channels, s.window));
    const auto qkv = tensor(s.dtype, normals(1, s.batch * s.time * s.packed_width()));
    const auto dout = tensor(s.dtype, normals(2, s.batch * s.time * s.heads * s.head_channels));
    std::vector<Tensor> out, lse, dqkv;
    const auto emulated = tiles::make_attention(s);
    const ops::Attention real(device(), s);
    for (int i = 0; i < 2; ++i) {
      out.push_back(tensor(s.dtype, dout.view().elements));
      lse.push_back(tensor(DType::f32, s.batch * s.heads * s.time));
      dqkv.push_back(tensor(s.dtype, qkv.view().elements));
      const ops::AttentionForward forward{
          .out = out.back().view(), .lse = lse.back().view(), .qkv = qkv.view()};
      const ops::AttentionBackward backward{.dqkv = dqkv.back().view(),
                                            .dout = dout.view(),
                                            .qkv = qkv.view(),
                                            .out = out.back().view(),
                                            .lse = lse.back().view()};
      if (i == 0) {
        emulated->forward(forward, stream());
        emulated->backward(backward, stream());
      } else {
        real.forward(forward, stream());
        real.backward(backward, stream());
      }
    }
    expect_same(out[0], out[1], tolerance().attention, "out");
    expect_same(lse[0], lse[1], 1e-6, "lse");
    expect_same(dqkv[0], dqkv[1], tolerance().attention, "dqkv");
  }
};

TEST_P(EmulatedTilesTest, MultiplyAsTheProcessorDoes) {
  for (const auto type : {DType::bf16, DType::f32})
    for (const bool a_transposed : {false, true})
      for (const bool b_transposed : {false, true}) {
        check_product({.m = 64,
                       .n = 288,
                       .k = 96,
                       .a_transposed = a_transposed,
                       .b_transposed = b_transposed,
                       .c = type});
        check_product({.m = 39,
                       .n = 45,
                       .k = 71,
                       .a_transposed = a_transposed,
                       .b_transposed = b_transposed,
                       .c = type});
      }
  check_product({.m = 33, .n = 33, .k = 3200, .c = DType::bf16});  // blocks of K
  check_product({.m = 32, .n = 544, .k = 8704, .c = DType::bf16});
  check_product({.m = 96,
                 .n = 64,
                 .k = 3200,
                 .a_transposed = true,
                 .c = DType::f32,
                 .accumulate = true,
                 .row_sums = true});
}

TEST_P(EmulatedTilesTest, AttendAsTheProcessorDoes) {
  check_attention({.batch = 1, .time = 192, .heads = 2, .head_channels = 64, .dtype = DType::bf16});
  check_attention({.batch = 2,
                   .time = 128,
                   .heads = 4,
                   .head_channels = 32,
                   .dtype = DType::bf16,
                   .grouped_heads = 2});
  check_attention({.batch = 1,
                   .time = 192,
                   .heads = 1,
                   .head_channels = 96,
                   .dtype = DType::bf16,
                   .window = 64});
}

INSTANTIATE_TEST_SUITE_P(Backends,
                         EmulatedTilesTest,
                         testing::Values(Backend{"cpu_bf16", device::Kind::cpu, DType::bf16,
                                                 bf16_tolerances}),
                         backend_name);

}  // namespace
}  // namespace trireme::test
