// SPDX-License-Identifier: Apache-2.0
// Proves that the stand-in for cuBLASLt keeps the library's contract: documented errors are
// refused, and valid products are right for any leading dimension.
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "support/gpu.hpp"

namespace trireme::test {
namespace {

/// D[2, 2] = op(A) · op(B) with k = 3, in fp32 unless stated otherwise.
class EmulatedBlas : public ::testing::Test {
 protected:
  void SetUp() override {
    TRIREME_NEEDS_GPU();
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(cublasLtCreate(&handle_), CUBLAS_STATUS_SUCCESS);
    ASSERT_EQ(cublasLtMatmulDescCreate(&description_, CUBLAS_COMPUTE_32F, CUDA_R_32F),
              CUBLAS_STATUS_SUCCESS);
    ASSERT_EQ(cublasLtMatmulPreferenceCreate(&preference_), CUBLAS_STATUS_SUCCESS);
    ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&memory_), memory_bytes), cudaSuccess);
    ASSERT_EQ(cudaMalloc(&workspace_, workspace_bytes), cudaSuccess);
  }
  void TearDown() override {
    if (stream_ == nullptr)
      return;
    for (const auto layout : layouts_) cublasLtMatrixLayoutDestroy(layout);
    cublasLtMatmulPreferenceDestroy(preference_);
    cublasLtMatmulDescDestroy(description_);
    cublasLtDestroy(handle_);
    cudaFree(memory_);
    cudaFree(workspace_);
    cudaStreamDestroy(stream_);
  }

  cublasLtMatrixLayout_t layout(std::uint64_t rows,
                                std::uint64_t columns,
                                std::int64_t leading,
                                cudaDataType_t type = CUDA_R_32F) {
    layouts_.emplace_back();
    EXPECT_EQ(cublasLtMatrixLayoutCreate(&layouts_.back(), type, rows, columns, leading),
              CUBLAS_STATUS_SUCCESS);
    return layouts_.back();
  }
  template <class T>
  cublasStatus_t set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    return cublasLtMatmulDescSetAttribute(description_, attribute, &value, sizeof value);
  }
  template <class T>
  void prefer(cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
    EXPECT_EQ(cublasLtMatmulPreferenceSetAttribute(preference_, attribute, &value, sizeof value),
              CUBLAS_STATUS_SUCCESS);
  }
  cublasStatus_t ask(cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t d) {
    return cublasLtMatmulAlgoGetHeuristic(handle_, description_, a, b, d, d, preference_,
                                          static_cast<int>(offers_.size()), offers_.data(),
                                          &offered_);
  }
  cublasStatus_t multiply(cublasLtMatrixLayout_t a,
                          cublasLtMatrixLayout_t b,
                          cublasLtMatrixLayout_t d,
                          int offer,
                          std::size_t shift_d = 0) {
    const float alpha = 1, beta = 0;
    return cublasLtMatmul(handle_, description_, &alpha, memory_, a, memory_ + b_at, b, &beta,
                          memory_ + d_at + shift_d, d, memory_ + d_at + shift_d, d,
                          &offers_[static_cast<std::size_t>(offer)].algo, workspace_,
                          workspace_bytes, stream_);
  }
  void write(std::size_t at, const std::vector<float>& values) {
    ASSERT_EQ(cudaMemcpyAsync(memory_ + at, values.data(), values.size() * sizeof(float),
                              cudaMemcpyDefault, stream_),
              cudaSuccess);
  }
  std::vector<float> read(std::size_t at, std::size_t count) {
    std::vector<float> values(count);
    EXPECT_EQ(cudaMemcpyAsync(values.data(), memory_ + at, count * sizeof(float), cudaMemcpyDefault,
                              stream_),
              cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    return values;
  }

  static constexpr std::size_t b_at = 256, d_at = 512, memory_bytes = 1024, workspace_bytes = 4096;
  cudaStream_t stream_ = nullptr;
  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulDesc_t description_ = nullptr;
  cublasLtMatmulPreference_t preference_ = nullptr;
  std::vector<cublasLtMatrixLayout_t> layouts_;
  std::byte* memory_ = nullptr;
  void* workspace_ = nullptr;
  std::array<cublasLtMatmulHeuristicResult_t, 8> offers_{};
  int offered_ = 0;
};

TEST_F(EmulatedBlas, MultipliesThroughLeadingDimensionsWithEveryAlgorithm) {
  // A = [1 3 5; 2 4 6], B' = [1 0 2; 0 1 3]; leading dimensions: A 4, B 5, D 3.
  write(0, {1, 2, -9, -9, 3, 4, -9, -9, 5, 6});
  write(b_at, {1, 0, -9, -9, -9, 0, 1, -9, -9, -9, 2, 3});
  ASSERT_EQ(set(CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_T), CUBLAS_STATUS_SUCCESS);
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{workspace_bytes});
  const auto a = layout(2, 3, 4), b = layout(2, 3, 5), d = layout(2, 2, 3);
  ASSERT_EQ(ask(a, b, d), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(offered_, 2);
  for (int offer = 0; offer < offered_; ++offer) {
    write(d_at, {0, 0, 77, 0, 0});
    ASSERT_EQ(multiply(a, b, d, offer), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(read(d_at, 5), (std::vector<float>{11, 14, 77, 18, 22})) << offer;
  }
}

TEST_F(EmulatedBlas, WritesTheSumsOfBWhereItIsToldTo) {
  write(0, {1, 2, 3, 4, 5, 6});
  write(b_at, {1, 0, 2, 0, 1, 3});
  const float* to = reinterpret_cast<const float*>(memory_ + b_at + 128);
  ASSERT_EQ(set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BGRADB), CUBLAS_STATUS_SUCCESS);
  const auto a = layout(2, 3, 2), b = layout(3, 2, 3), d = layout(2, 2, 2);
  ASSERT_EQ(set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, to), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(ask(a, b, d), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(multiply(a, b, d, 0), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(read(d_at, 4), (std::vector<float>{11, 14, 18, 22}));
  EXPECT_EQ(read(b_at + 128, 2), (std::vector<float>{3, 4}));
}

TEST_F(EmulatedBlas, OffersNoWorkspaceThatWasNotGranted) {
  const auto a = layout(2, 3, 2), b = layout(3, 2, 3), d = layout(2, 2, 2);
  ASSERT_EQ(ask(a, b, d), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(offered_, 1);
  EXPECT_EQ(offers_[0].workspaceSize, 0U);
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{workspace_bytes});
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, std::uint32_t{0});
  ASSERT_EQ(ask(a, b, d), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(offered_, 1);
}

TEST_F(EmulatedBlas, RefusesAnAlgorithmElsewhere) {
  const auto a = layout(2, 3, 2), b = layout(3, 2, 3), d = layout(2, 2, 2);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, std::uint32_t{8});
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, std::uint32_t{8});
  ASSERT_EQ(ask(a, b, d), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(multiply(a, b, d, 0, 8), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(multiply(a, b, d, 0, 4), CUBLAS_STATUS_INVALID_VALUE) << "less aligned";
  EXPECT_EQ(multiply(layout(2, 3, 4), b, d, 0), CUBLAS_STATUS_INVALID_VALUE) << "another layout";
  EXPECT_EQ(multiply(a, layout(2, 2, 2), d, 0), CUBLAS_STATUS_INVALID_VALUE) << "another depth";
  alignas(16) std::array<std::byte, memory_bytes> of_the_host{};
  std::byte* const gpu = std::exchange(memory_, of_the_host.data());
  EXPECT_EQ(multiply(a, b, d, 0), CUBLAS_STATUS_EXECUTION_FAILED) << "memory of the host";
  memory_ = gpu;
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
}

TEST_F(EmulatedBlas, RefusesWhatTheGuideSaysIsUnsupported) {
  const auto a = layout(2, 3, 2, CUDA_R_16BF), b = layout(3, 2, 3, CUDA_R_16BF),
             d = layout(2, 2, 2, CUDA_R_16BF);
  EXPECT_EQ(ask(a, layout(3, 2, 3), d), CUBLAS_STATUS_NOT_SUPPORTED) << "factors of two types";
  ASSERT_EQ(set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, CUDA_R_32F), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(ask(a, b, d), CUBLAS_STATUS_NOT_SUPPORTED) << "a bias in fp32 for bf16";
  EXPECT_EQ(ask(a, b, layout(2, 2, 2)), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_DGELU), CUBLAS_STATUS_SUCCESS);
  for (const std::int64_t leading : {0, 2, 12}) {
    ASSERT_EQ(set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, leading), CUBLAS_STATUS_SUCCESS);
    EXPECT_EQ(ask(a, b, d), CUBLAS_STATUS_INVALID_VALUE) << leading;
  }
  ASSERT_EQ(set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, std::int64_t{8}), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(ask(a, b, d), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(multiply(a, b, d, 0), CUBLAS_STATUS_INVALID_VALUE) << "no auxiliary matrix";
}

TEST_F(EmulatedBlas, RefusesAttributesOfAnotherSize) {
  EXPECT_EQ(set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, std::int32_t{8}),
            CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(set(CUBLASLT_MATMUL_DESC_TRANSA, std::int64_t{CUBLAS_OP_T}),
            CUBLAS_STATUS_INVALID_VALUE);
  cublasLtMatrixLayout_t none = nullptr;
  EXPECT_EQ(cublasLtMatrixLayoutCreate(&none, CUDA_R_32F, 4, 4, 3), CUBLAS_STATUS_INVALID_VALUE);
}

}  // namespace
}  // namespace trireme::test
