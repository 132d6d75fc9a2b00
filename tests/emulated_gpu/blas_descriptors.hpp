// SPDX-License-Identifier: Apache-2.0
// The objects behind cuBLASLt's opaque handles: the attributes as the caller has set them.
//
// 1. An attribute must have the size that cublasLt.h documents. Another size, or an attribute
//    that the stand-in does not implement, gives CUBLAS_STATUS_INVALID_VALUE and a line on
//    standard error. Nothing is ignored silently.
// 2. Each object begins with a word that identifies its kind. A handle that was destroyed or has
//    another kind is refused (under ASan: reported).
#pragma once

#include <cstddef>
#include <cstdint>

#include <cublasLt.h>

namespace emulated::blas {

/// Column-major: element (i, j) is at i + j · leading.
struct Layout {
  static constexpr std::uint64_t kind = 0x6c61796f7574ULL;
  std::uint64_t tag = kind;
  cudaDataType_t type{};
  std::int64_t rows = 0, columns = 0, leading = 0;
};

struct Description {
  static constexpr std::uint64_t kind = 0x6d61746d756cULL;
  std::uint64_t tag = kind;
  cublasComputeType_t compute{};
  cudaDataType_t scale{};
  std::int32_t transposes_a = CUBLAS_OP_N, transposes_b = CUBLAS_OP_N;
  std::uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  std::int32_t bias_type = -1;  // -1: that of D
  void* auxiliary = nullptr;
  std::int64_t auxiliary_leading = 0;
  std::int32_t multiprocessors = 0;
};

struct Preference {
  static constexpr std::uint64_t kind = 0x70726566ULL;
  std::uint64_t tag = kind;
  std::uint64_t workspace_bytes = 0;
  std::uint32_t reduction_schemes = CUBLASLT_REDUCTION_SCHEME_MASK;
  std::uint32_t alignment_a = 256, alignment_b = 256, alignment_c = 256, alignment_d = 256;
};

/// Returns null if the handle is not a T.
template <class T, class Handle>
const T* known(Handle handle) {
  const auto* object = reinterpret_cast<const T*>(handle);
  return object != nullptr && object->tag == T::kind ? object : nullptr;
}

/// Prints the caller's mistake to standard error and returns `status`.
cublasStatus_t refuse(cublasStatus_t status, const char* format, ...)
    __attribute__((format(printf, 2, 3)));

}  // namespace emulated::blas
