// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <fmt/format.h>

#include "ops/cuda/cublaslt.hpp"
#include "ops/cuda/nvrtc.hpp"

namespace trireme::ops {

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
                                  why));
  return opened;
}

void* find_in_cublaslt(const char* function) {
  static void* const library = open_cublaslt(fmt::format("libcublasLt.so.{}", CUBLAS_VER_MAJOR));
  void* const found = dlsym(library, function);
  if (found == nullptr)
    throw DeviceError("cuBLASLt", fmt::format("dlsym {}", function), words_of_loader());
  return found;
}

}  // namespace trireme::ops
