// SPDX-License-Identifier: Apache-2.0
#include "emulated_gpu/blas_descriptors.hpp"

#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace emulated::blas {

cublasStatus_t refuse(cublasStatus_t status, const char* format, ...) {
  std::va_list words;
  va_start(words, format);
  std::fputs("emulated cuBLASLt: ", stderr);
  std::vfprintf(stderr, format, words);
  std::fputc('\n', stderr);
  va_end(words);
  return status;
}

namespace {

template <class T, class Handle>
cublasStatus_t make(Handle* handle, T*& made) {
  if (handle == nullptr)
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "no place for a descriptor");
  made = new T;
  *handle = reinterpret_cast<Handle>(made);
  return CUBLAS_STATUS_SUCCESS;
}

template <class T, class Handle>
cublasStatus_t destroy(Handle handle) {
  auto* object = const_cast<T*>(known<T>(handle));
  if (object == nullptr)
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "what is destroyed is not a descriptor of its kind");
  object->tag = 0;
  delete object;
  return CUBLAS_STATUS_SUCCESS;
}

/// Copies one attribute of `bytes` bytes from the caller's memory.
template <class T>
cublasStatus_t take(T& to, int attribute, const void* from, std::size_t bytes) {
  if (from == nullptr || bytes != sizeof(T))
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "attribute %d in %zu bytes, it has %zu", attribute,
                  bytes, sizeof(T));
  std::memcpy(&to, from, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace
}  // namespace emulated::blas

using namespace emulated::blas;

extern "C" {

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout,
                                          cudaDataType type,
                                          std::uint64_t rows,
                                          std::uint64_t columns,
                                          std::int64_t leading) {
  // Column order, the default: "leading dimension is the stride (in elements) to the beginning of
  // the next column", so a column has to fit. Source: cublasLt.h, cublasLtOrder_t.
  if (rows == 0 || columns == 0 || leading < static_cast<std::int64_t>(rows))
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "a matrix of %zu x %zu at a distance of %td", rows,
                  columns, leading);
  Layout* made = nullptr;
  if (const auto status = make(layout, made); status != CUBLAS_STATUS_SUCCESS)
    return status;
  *made = {Layout::kind, type, static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns),
           leading};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return destroy<Layout>(layout);
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* description,
                                        cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  Description* made = nullptr;
  if (const auto status = make(description, made); status != CUBLAS_STATUS_SUCCESS)
    return status;
  made->compute = compute;
  made->scale = scale;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description) {
  return destroy<Description>(description);
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t description,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value,
                                              std::size_t bytes) {
  auto* d = const_cast<Description*>(known<Description>(description));
  if (d == nullptr)
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "an attribute for no description");
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return take(d->transposes_a, attribute, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return take(d->transposes_b, attribute, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return take(d->epilogue, attribute, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return take(d->bias, attribute, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      return take(d->bias_type, attribute, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      return take(d->auxiliary, attribute, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      return take(d->auxiliary_leading, attribute, value, bytes);
    case CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET:
      return take(d->multiprocessors, attribute, value, bytes);
    default:
      return refuse(CUBLAS_STATUS_INVALID_VALUE, "attribute %d of a product is not known here",
                    static_cast<int>(attribute));
  }
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  Preference* made = nullptr;
  return make(preference, made);
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return destroy<Preference>(preference);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value,
                                                    std::size_t bytes) {
  auto* p = const_cast<Preference*>(known<Preference>(preference));
  if (p == nullptr)
    return refuse(CUBLAS_STATUS_INVALID_VALUE, "an attribute for no preference");
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return take(p->workspace_bytes, attribute, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return take(p->reduction_schemes, attribute, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      return take(p->alignment_a, attribute, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      return take(p->alignment_b, attribute, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      return take(p->alignment_c, attribute, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return take(p->alignment_d, attribute, value, bytes);
    default:
      return refuse(CUBLAS_STATUS_INVALID_VALUE, "attribute %d of a preference is not known here",
                    static_cast<int>(attribute));
  }
}

}  // extern "C"
