// SPDX-License-Identifier: Apache-2.0
// cuBLASLt, opened when a product on a GPU needs it first. Linked, it would be loaded by every
// process of a build with CUDA: its half GiB takes the loader 65 ms and 100 MB of relocated pages,
// also where ranks are on CPUs or only a plan is printed.
//
// 1. The functions of cublasLt.h that trireme calls are defined in cublaslt_library.cpp; each finds
//    that of the library at its first call. What calls them does not know.
// 2. They are seen by this executable only: other libraries find the real ones.
// 3. The library stays open to the end.
#pragma once

#include <string>

namespace trireme::ops {

/// "libcublasLt.so.13", of the toolkit that this was built with.
std::string cublaslt_library();

/// Where the loader finds `library`, or in the folder where it was when trireme was configured.
/// Throws: DeviceError with the loader's words and what to do, where it is in neither.
void* open_cublaslt(const std::string& library = cublaslt_library());

}  // namespace trireme::ops
