// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/cublaslt_library.hpp"

#include <cublasLt.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include "base/error.hpp"

#include "ops/cuda/loader.hpp"

namespace trireme::ops {
namespace {

/// The library's function of that name, whose type is that of the one in the header.
template <class Function>
Function* function_of(const char* name) {
  static void* const library = open_cublaslt();
  auto* found = reinterpret_cast<Function*>(dlsym(library, name));
  if (found == nullptr)
    throw DeviceError("cuBLASLt", fmt::format("dlsym {}", name), words_of_loader(), __FILE__,
                      __LINE__);
  return found;
}

}  // namespace

std::string cublaslt_library() {
  return fmt::format("libcublasLt.so.{}", CUBLAS_VER_MAJOR);
}

void* open_cublaslt(const std::string& library) {
  void* opened = dlopen(library.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (opened != nullptr)
    return opened;
  const std::string why = words_of_loader();
  opened = dlopen(fmt::format("{}/{}", TRIREME_CUBLASLT_FOLDER, library).c_str(),
                  RTLD_LAZY | RTLD_LOCAL);
  if (opened == nullptr)
    throw DeviceError("cuBLASLt", fmt::format("dlopen {}", library),
                      fmt::format("{}; add its folder to LD_LIBRARY_PATH (CUDA's lib64, or "
                                  "nvidia/cu13/lib or nvidia/cublas/lib of a Python environment)",
                                  why),
                      __FILE__, __LINE__);
  return opened;
}

}  // namespace trireme::ops

// NOLINTNEXTLINE(cppcoreguidelines-macro-usage): the name is needed as a symbol and as text.
#define TRIREME_FORWARD(result, name, parameters, arguments)                          \
  result name parameters {                                                            \
    static auto* const function = ::trireme::ops::function_of<decltype(name)>(#name); \
    return function arguments;                                                        \
  }

extern "C" {

TRIREME_FORWARD(const char*, cublasLtGetStatusString, (cublasStatus_t status), (status))
TRIREME_FORWARD(cublasStatus_t, cublasLtCreate, (cublasLtHandle_t * handle), (handle))
TRIREME_FORWARD(cublasStatus_t, cublasLtDestroy, (cublasLtHandle_t handle), (handle))

TRIREME_FORWARD(cublasStatus_t,
                cublasLtMatrixLayoutCreate,
                (cublasLtMatrixLayout_t * layout,
                 cudaDataType type,
                 std::uint64_t rows,
                 std::uint64_t columns,
                 std::int64_t stride),
                (layout, type, rows, columns, stride))
TRIREME_FORWARD(cublasStatus_t,
                cublasLtMatrixLayoutDestroy,
                (cublasLtMatrixLayout_t layout),
                (layout))

TRIREME_FORWARD(cublasStatus_t,
                cublasLtMatmulDescCreate,
                (cublasLtMatmulDesc_t * description,
                 cublasComputeType_t sums,
                 cudaDataType_t factors),
                (description, sums, factors))
TRIREME_FORWARD(cublasStatus_t,
                cublasLtMatmulDescDestroy,
                (cublasLtMatmulDesc_t description),
                (description))
TRIREME_FORWARD(cublasStatus_t,
                cublasLtMatmulDescSetAttribute,
                (cublasLtMatmulDesc_t description,
                 cublasLtMatmulDescAttributes_t attribute,
                 const void* value,
                 std::size_t bytes),
                (description, attribute, value, bytes))

TRIREME_FORWARD(cublasStatus_t,
                cublasLtMatmulPreferenceCreate,
                (cublasLtMatmulPreference_t * preference),
                (preference))
TRIREME_FORWARD(cublasStatus_t,
                cublasLtMatmulPreferenceDestroy,
                (cublasLtMatmulPreference_t preference),
                (preference))
TRIREME_FORWARD(cublasStatus_t,
                cublasLtMatmulPreferenceSetAttribute,
                (cublasLtMatmulPreference_t preference,
                 cublasLtMatmulPreferenceAttributes_t attribute,
                 const void* value,
                 std::size_t bytes),
                (preference, attribute, value, bytes))

TRIREME_FORWARD(cublasStatus_t,
                cublasLtMatmulAlgoGetHeuristic,
                (cublasLtHandle_t handle,
                 cublasLtMatmulDesc_t description,
                 cublasLtMatrixLayout_t a,
                 cublasLtMatrixLayout_t b,
                 cublasLtMatrixLayout_t c,
                 cublasLtMatrixLayout_t d,
                 cublasLtMatmulPreference_t preference,
                 int asked,
                 cublasLtMatmulHeuristicResult_t* results,
                 int* found),
                (handle, description, a, b, c, d, preference, asked, results, found))
TRIREME_FORWARD(cublasStatus_t,
                cublasLtMatmul,
                (cublasLtHandle_t handle,
                 cublasLtMatmulDesc_t description,
                 const void* alpha,
                 const void* a,
                 cublasLtMatrixLayout_t a_layout,
                 const void* b,
                 cublasLtMatrixLayout_t b_layout,
                 const void* beta,
                 const void* c,
                 cublasLtMatrixLayout_t c_layout,
                 void* d,
                 cublasLtMatrixLayout_t d_layout,
                 const cublasLtMatmulAlgo_t* algorithm,
                 void* workspace,
                 std::size_t workspace_bytes,
                 cudaStream_t stream),
                (handle,
                 description,
                 alpha,
                 a,
                 a_layout,
                 b,
                 b_layout,
                 beta,
                 c,
                 c_layout,
                 d,
                 d_layout,
                 algorithm,
                 workspace,
                 workspace_bytes,
                 stream))

}  // extern "C"
