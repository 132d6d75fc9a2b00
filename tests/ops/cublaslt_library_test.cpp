// SPDX-License-Identifier: Apache-2.0
// The part of cuBLASLt that works without a GPU, through the functions that load it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"

#include "ops/cuda/cublaslt.hpp"

namespace trireme::ops {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(CublasLtLibrary, ThatIsMissingIsNamedWithTheWayOut) {
  try {
    open_cublaslt("libcublasLt-absent.so.1");
    FAIL() << "was opened";
  } catch (const DeviceError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("cuBLASLt"), HasSubstr("libcublasLt-absent.so.1"),
                                    HasSubstr("LD_LIBRARY_PATH")));
  }
}

TEST(CublasLtLibrary, IsThatOfTheHeader) {
  EXPECT_THAT(TRIREME_LT(cublasLtGetStatusString)(CUBLAS_STATUS_NOT_SUPPORTED),
              HasSubstr("not supported"));
}

TEST(CublasLtLibrary, DescribesProducts) {
  const cublaslt::Layout layout(DType::bf16, 8, 16);
  cublaslt::Description description;
  description.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
  cublaslt::Preference preference;
  preference.set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::size_t{1} << 20);
}

TEST(CublasLtLibrary, RefusesProductsWithoutAHandle) {
  const cublaslt::Layout layout(DType::f32, 8, 8);
  const cublaslt::Description description;
  const cublaslt::Preference preference;
  cublasLtMatmulHeuristicResult_t result{};
  int found = 0;
  EXPECT_NE(TRIREME_LT(cublasLtMatmulAlgoGetHeuristic)(nullptr, description.raw, layout.raw,
                                                       layout.raw, layout.raw, layout.raw,
                                                       preference.raw, 1, &result, &found),
            CUBLAS_STATUS_SUCCESS);
  const float one = 1;
  EXPECT_NE(TRIREME_LT(cublasLtMatmul)(nullptr, description.raw, &one, nullptr, layout.raw, nullptr,
                                       layout.raw, &one, nullptr, layout.raw, nullptr, layout.raw,
                                       nullptr, nullptr, 0, nullptr),
            CUBLAS_STATUS_SUCCESS);
}

}  // namespace
}  // namespace trireme::ops
