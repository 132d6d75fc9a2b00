// SPDX-License-Identifier: Apache-2.0
// RAII owners of cuBLASLt's descriptors, and the check of its calls: a failure is a DeviceError
// with the statement and the library's message. The owners can be neither moved nor copied.
//
// cuBLASLt is opened when a product on a GPU first needs it (cublaslt_library.cpp). If it were
// linked, every process of a build with CUDA would load it, also with ranks on CPUs or to print a
// plan: its half GiB costs the loader 65 ms and 100 MB of relocated pages. The library stays open
// until the process ends.
#pragma once

#include <cstdint>
#include <string>

#include <cublasLt.h>

#include "base/dtype.hpp"
#include "base/error.hpp"

namespace trireme::ops {

/// Opens `library` where the loader finds it, or in the folder where it was when trireme was
/// configured. Throws DeviceError with the loader's message and what to do if it is in neither.
void* open_cublaslt(const std::string& library);

/// Looks up a function of the library by name. Throws DeviceError.
void* find_in_cublaslt(const char* function);

}  // namespace trireme::ops

/// A function of cublasLt.h: looked up once in the library. The emulated GPU's is linked.
#ifdef TRIREME_CUBLASLT_FOLDER
#define TRIREME_LT(name)                                                              \
  ([] {                                                                               \
    static auto* const name##_ =                                                      \
        reinterpret_cast<decltype(&(name))>(::trireme::ops::find_in_cublaslt(#name)); \
    return name##_;                                                                   \
  }())
#else
#define TRIREME_LT(name) name
#endif

/// A cuBLASLt call that must succeed: the function, then its arguments.
#define TRIREME_CUBLASLT(function, ...)                              \
  ::trireme::ops::cublaslt::check(TRIREME_LT(function)(__VA_ARGS__), \
                                  #function "(" #__VA_ARGS__ ")", __FILE__, __LINE__)

namespace trireme::ops::cublaslt {

inline void check(cublasStatus_t status, const char* statement, const char* file, int line) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw DeviceError("cuBLASLt", statement, TRIREME_LT(cublasLtGetStatusString)(status), file,
                      line);
}
/// The library's handle: one per device, made at the first product and kept with the device
/// (device::cuda::kept_with). It has no settings; those of a product are in its Description.
struct Library {
  Library() { TRIREME_CUBLASLT(cublasLtCreate, &handle); }
  ~Library() { TRIREME_LT(cublasLtDestroy)(handle); }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  cublasLtHandle_t handle = nullptr;
};

inline cudaDataType_t type_of(DType dtype) {
  return dtype == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F;
}

/// A dense column-major matrix.
struct Layout {
  Layout(DType dtype, std::int64_t rows, std::int64_t columns) {
    TRIREME_CUBLASLT(cublasLtMatrixLayoutCreate, &raw, type_of(dtype),
                     static_cast<std::uint64_t>(rows), static_cast<std::uint64_t>(columns), rows);
  }
  ~Layout() { TRIREME_LT(cublasLtMatrixLayoutDestroy)(raw); }
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;

  cublasLtMatrixLayout_t raw = nullptr;
};

/// Descriptor of a product: sums in fp32, and attributes such as transpositions and the epilogue.
struct Description {
  Description() {
    TRIREME_CUBLASLT(cublasLtMatmulDescCreate, &raw, CUBLAS_COMPUTE_32F, CUDA_R_32F);
  }
  ~Description() { TRIREME_LT(cublasLtMatmulDescDestroy)(raw); }
  Description(const Description&) = delete;
  Description& operator=(const Description&) = delete;

  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    TRIREME_CUBLASLT(cublasLtMatmulDescSetAttribute, raw, attribute, &value, sizeof value);
  }

  cublasLtMatmulDesc_t raw = nullptr;
};

/// Constraints on the heuristics: size of the workspace, alignments, reduction schemes.
struct Preference {
  Preference() { TRIREME_CUBLASLT(cublasLtMatmulPreferenceCreate, &raw); }
  ~Preference() { TRIREME_LT(cublasLtMatmulPreferenceDestroy)(raw); }
  Preference(const Preference&) = delete;
  Preference& operator=(const Preference&) = delete;

  template <class T>
  void set(cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
    TRIREME_CUBLASLT(cublasLtMatmulPreferenceSetAttribute, raw, attribute, &value, sizeof value);
  }

  cublasLtMatmulPreference_t raw = nullptr;
};

}  // namespace trireme::ops::cublaslt
