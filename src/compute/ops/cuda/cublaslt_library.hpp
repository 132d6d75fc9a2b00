// SPDX-License-Identifier: Apache-2.0
// cuBLASLt, opened when a product on a GPU needs it first. Linked, it would be loaded by every
// process of a build with CUDA: its half GiB takes the loader 65 ms and 100 MB of relocated pages,
// also where ranks are on CPUs or only a plan is printed. The library stays open to the end.
#pragma once

#include <string>

namespace trireme::ops {

/// "libcublasLt.so.13", of the toolkit that this was built with.
std::string cublaslt_library();

/// Where the loader finds `library`, or in the folder where it was when trireme was configured.
/// Throws: DeviceError with the loader's words and what to do, where it is in neither.
void* open_cublaslt(const std::string& library = cublaslt_library());

/// The library's function of that name. Throws DeviceError.
void* find_in_cublaslt(const char* function);

}  // namespace trireme::ops

/// A function of cublasLt.h: the library's, looked up once. The emulated GPU's is linked.
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
