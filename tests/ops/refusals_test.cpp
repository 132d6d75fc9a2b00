// SPDX-License-Identifier: Apache-2.0
// If cuDNN or cuBLASLt refuses a call that the emulated libraries normally accept, results are
// those of trireme's own kernels, and the device keeps a note for the log.
#include <cstdlib>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "base/error.hpp"

#include "ops/attention.hpp"
#include "ops/matmul.hpp"
#include "ops/tensors.hpp"

#include "support/gpu.hpp"

namespace trireme::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* cudnn_refuses = "TRIREME_EMULATED_CUDNN_REFUSES";
constexpr const char* cublaslt_refuses = "TRIREME_EMULATED_CUBLASLT_REFUSES";

/// Sets an environment variable for a scope.
class Injected {
 public:
  Injected(const char* name, const std::string& value) : name_(name) {
    setenv(name, value.c_str(), 1);  // NOLINT(concurrency-mt-unsafe)
  }
  ~Injected() { unsetenv(name_); }  // NOLINT(concurrency-mt-unsafe)
  Injected(const Injected&) = delete;
  Injected& operator=(const Injected&) = delete;

 private:
  const char* name_;
};

class RefusalsGpu : public testing::Test {
 protected:
  void SetUp() override {
    TRIREME_NEEDS_GPU();
    open_device();
  }

  /// Opens another device, with new library handles and notes.
  void open_device() {
    stream_.reset();
    device_ = device::make_cuda_device(0);
    stream_ = device_->make_stream(device::StreamMode::inlined, "test");
  }

  Tensor tensor(DType dtype, std::int64_t elements, std::uint64_t seed) {
    Tensor made(*device_, *stream_, dtype, elements);
    made.fill(normals(seed, elements));
    return made;
  }

  std::unique_ptr<device::Device> device_;
  std::unique_ptr<device::Stream> stream_;
};

class AttentionRefusalsGpu : public RefusalsGpu {
 protected:
  static constexpr ops::AttentionShape shape{
      .batch = 4, .time = 64, .heads = 2, .head_channels = 32, .dtype = DType::bf16};

  ops::Attention attention(const ops::AttentionOptions& options) {
    return {*device_, shape, options};
  }

  /// The bytes of out, lse and dqkv.
  std::vector<std::byte> bits(const ops::Attention& attention) {
    const auto& s = shape;
    const auto qkv = tensor(DType::bf16, s.batch * s.time * s.packed_width(), 1);
    const auto dout = tensor(DType::bf16, s.batch * s.time * s.heads * s.head_channels, 2);
    const auto out = tensor(DType::bf16, dout.view().elements, 3),
               dqkv = tensor(DType::bf16, qkv.view().elements, 4);
    const auto lse = tensor(DType::f32, s.batch * s.heads * s.time, 5);
    attention.forward({.out = out.view(), .lse = lse.view(), .qkv = qkv.view()}, *stream_);
    attention.backward({.dqkv = dqkv.view(),
                        .dout = dout.view(),
                        .qkv = qkv.view(),
                        .out = out.view(),
                        .lse = lse.view()},
                       *stream_);
    std::vector<std::byte> all;
    for (const Tensor* t : {&out, &lse, &dqkv})
      for (const std::byte byte : t->bytes()) all.push_back(byte);
    return all;
  }

  std::vector<std::byte> bits_of_own_kernels() {
    return bits(attention({.kernels = ops::AttentionKernels::own}));
  }
};

TEST_F(AttentionRefusalsGpu, AGraphThatCudnnRefusesIsComputedByOwnKernels) {
  const auto own = bits_of_own_kernels();
  for (const char* stage : {"create", "validate", "build_operation_graph", "create_execution_plans",
                            "check_support", "build_plans"}) {
    SCOPED_TRACE(stage);
    open_device();
    const Injected injected(cudnn_refuses, stage);
    EXPECT_EQ(bits(attention({})), own);
    EXPECT_THAT(device_->take_notes(),
                ElementsAre(AllOf(HasSubstr("own kernels compute the forward pass"),
                                  HasSubstr("4 x 64 positions, 2 heads of 32 channels")),
                            HasSubstr("own kernels compute the backward pass")));
    EXPECT_EQ(bits(attention({})), own) << "the second time";
    EXPECT_THAT(device_->take_notes(), IsEmpty()) << "a note is written once";
    EXPECT_THROW(attention({.kernels = ops::AttentionKernels::cudnn}), DeviceError);
  }
}

TEST_F(AttentionRefusalsGpu, ACallThatCudnnRefusesIsComputedByOwnKernels) {
  const auto own = bits_of_own_kernels();
  const auto automatic = attention({});
  EXPECT_NE(bits(automatic), own) << "cuDNN's order of sums differs, or this test proves nothing";
  const Injected injected(cudnn_refuses, "execute");
  EXPECT_EQ(bits(automatic), own);
  EXPECT_THAT(device_->take_notes(),
              ElementsAre(HasSubstr("injected into execute"), HasSubstr("injected into execute")));
  EXPECT_THROW(bits(attention({.kernels = ops::AttentionKernels::cudnn})), DeviceError);
}

class MatmulRefusalsGpu : public RefusalsGpu {
 protected:
  static constexpr std::int64_t m = 16, n = 24, k = 32;
  using Epilogue = ops::Epilogue;

  static ops::MatmulShape shape() {
    return {.m = m, .n = n, .k = k, .a = DType::bf16, .b = DType::bf16, .c = DType::bf16};
  }

  /// The bytes of C, and of Z where there is an epilogue.
  std::vector<std::byte> bits(const ops::MatmulShape& s,
                              const ops::ProductOptions& options = {},
                              std::int64_t bias_offset = 0) {
    const ops::Matmul matmul(*device_, s, options);
    const auto a = tensor(s.a, m * k, 1), b = tensor(s.b, k * n, 2),
               bias = tensor(s.b, n + bias_offset, 3), z = tensor(s.c, m * n, 4),
               c = tensor(s.c, m * n, 5), sums = tensor(DType::f32, m, 6);
    const View bias_view = bias.view().slice(bias_offset, s.bias ? n : 0);
    if (s.epilogue != Epilogue::none)
      matmul({.a = a.view(), .b = b.view(), .bias = bias_view, .z = z.view(), .c = c.view()},
             *stream_);
    else if (s.row_sums)
      matmul({.a = a.view(), .b = b.view(), .c = c.view(), .row_sums = sums.view()}, *stream_);
    else if (s.bias)
      matmul({.a = a.view(), .b = b.view(), .bias = bias_view, .c = c.view()}, *stream_);
    else
      matmul({.a = a.view(), .b = b.view(), .c = c.view()}, *stream_);
    std::vector<std::byte> all = c.bytes();
    for (const Tensor* t : {&z, &sums})
      for (const std::byte byte : t->bytes()) all.push_back(byte);
    return all;
  }

  /// Compares results without the library with those where the library refuses the call.
  void expect_fallback(const char* what,
                       const ops::MatmulShape& s,
                       const ops::ProductOptions& without,
                       const ops::ProductOptions& with) {
    const auto expected = bits(s, without);
    for (const std::string where : {"", "_launch"}) {
      SCOPED_TRACE(what + where);
      open_device();
      const Injected injected(cublaslt_refuses, what + where);
      EXPECT_EQ(bits(s, with), expected);
      EXPECT_THAT(device_->take_notes(),
                  ElementsAre(AllOf(HasSubstr("cuBLASLt refuses a product with"),
                                    HasSubstr("C[16, 24]"), HasSubstr("status"))));
    }
  }
};

TEST_F(MatmulRefusalsGpu, AGeluIsComputedSeparately) {
  auto s = shape();
  s.bias = true;
  s.epilogue = Epilogue::gelu;
  expect_fallback("gelu", s, {.fused_gelu = false}, {});
  s.bias = false;
  s.epilogue = Epilogue::gelu_backward;
  expect_fallback("gelu", s, {.fused_gelu_backward = false}, {});
}

TEST_F(MatmulRefusalsGpu, SumsOfRowsAreComputedSeparately) {
  auto s = shape();
  s.c = DType::f32;
  s.a_transposed = s.accumulate = s.row_sums = true;
  expect_fallback("row_sums", s, {}, {.fused_row_sums = true});
}

TEST_F(MatmulRefusalsGpu, ABiasIsWrittenToTheResultFirst) {
  auto s = shape();
  s.bias = true;
  std::vector<std::byte> spread;
  {
    const Injected injected(cublaslt_refuses, "bias");
    spread = bits(s);
    EXPECT_THAT(device_->take_notes(), ElementsAre(HasSubstr("a product with a bias")));
  }
  const Injected injected(cublaslt_refuses, "bias_launch");
  EXPECT_EQ(bits(s), spread);
}

/// cuBLASLt's preferences have no alignment for a bias.
TEST_F(MatmulRefusalsGpu, AMisalignedBiasIsNotGivenToTheLibrary) {
  auto s = shape();
  s.bias = true;
  for (const Epilogue epilogue : {Epilogue::none, Epilogue::gelu}) {
    s.epilogue = epilogue;
    const Injected injected(cublaslt_refuses, epilogue == Epilogue::gelu ? "gelu" : "bias");
    bits(s, {}, 1);
    EXPECT_THAT(device_->take_notes(), IsEmpty()) << "the library was asked";
  }
}

TEST_F(MatmulRefusalsGpu, APlainProductFailsWithItsShapeAndTheStatus) {
  for (const char* what : {"plain", "plain_launch"}) {
    const Injected injected(cublaslt_refuses, what);
    try {
      bits(shape());
      ADD_FAILURE() << what;
    } catch (const DeviceError& problem) {
      EXPECT_THAT(problem.what(),
                  AllOf(HasSubstr("C[16, 24] = A[16, 32] B[32, 24] of bf16 and bf16 into bf16"),
                        HasSubstr("leading dimensions A 32, B 24, C 24"), HasSubstr("alignments"),
                        HasSubstr("status")));
    }
  }
}

}  // namespace
}  // namespace trireme::test
