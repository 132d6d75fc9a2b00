// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/nvrtc.hpp"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

namespace trireme::ops {
namespace {

// Never closed: NVRTC's static C++ runtime does not return its memory, so each further opening
// would leak 71 KiB. A library that is open already is opened at no cost.
void* open_for_good(const std::string& library) {
  return dlopen(library.c_str(), RTLD_LAZY | RTLD_LOCAL);
}

std::string without(const std::string& library) {
  return fmt::format(
      "cuDNN compiles with NVRTC, and {} cannot be opened ({}): add its folder to LD_LIBRARY_PATH "
      "(CUDA's lib64, or nvidia/cu13/lib or nvidia/cuda_nvrtc/lib of a Python environment)",
      library, words_of_loader());
}

}  // namespace

std::string nvrtc_library() {
  return fmt::format("libnvrtc.so.{}", CUDART_VERSION / 1000);
}

std::string nvrtc_problem(const std::string& library) {
  void* const compiler = open_for_good(library);
  if (compiler == nullptr)
    return without(library);
  int major = 0, minor = 0;
  using Version = int (*)(int*, int*);
  const auto version = reinterpret_cast<Version>(dlsym(compiler, "nvrtcVersion"));
  if (version == nullptr || version(&major, &minor) != 0)
    return fmt::format("cuDNN compiles with NVRTC, and {} is not it: it has no version", library);
  const std::string builtins = fmt::format("libnvrtc-builtins.so.{}.{}", major, minor);
  return open_for_good(builtins) != nullptr ? "" : without(builtins);
}

}  // namespace trireme::ops
