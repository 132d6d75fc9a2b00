// SPDX-License-Identifier: Apache-2.0
// Compiles a kernel with NVRTC as cuDNN does at run time, without a GPU, and asks cuDNN for its version. Both are found by the loader, by
// the names given. Exit code 1: one of them is not found or does not work.
//   usage: nvrtc_probe LIBNVRTC LIBCUDNN
#include <cstddef>
#include <cstdio>

#include <dlfcn.h>

namespace {

void* opened(const char* library) {
  void* const handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr)
    std::fprintf(stderr, "%s\n", dlerror());
  return handle;
}

}  // namespace

int main(int count, char** words) {
  if (count != 3)
    return 2;
  void* const nvrtc = opened(words[1]);
  void* const cudnn = opened(words[2]);
  if (nvrtc == nullptr || cudnn == nullptr)
    return 1;
  using Create =
      int (*)(void**, const char*, const char*, int, const char* const*, const char* const*);
  using Compile = int (*)(void*, int, const char* const*);
  using Size = int (*)(void*, std::size_t*);
  const auto create = reinterpret_cast<Create>(dlsym(nvrtc, "nvrtcCreateProgram"));
  const auto compile = reinterpret_cast<Compile>(dlsym(nvrtc, "nvrtcCompileProgram"));
  const auto size = reinterpret_cast<Size>(dlsym(nvrtc, "nvrtcGetCUBINSize"));
  const auto version = reinterpret_cast<std::size_t (*)()>(dlsym(cudnn, "cudnnGetVersion"));
  if (create == nullptr || compile == nullptr || size == nullptr || version == nullptr)
    return 1;
  const char* const kernel =
      "extern \"C\" __global__ void grow(float* x) { x[threadIdx.x] = __expf(x[threadIdx.x]); }";
  const char* const options[] = {"--gpu-architecture=sm_90"};
  void* program = nullptr;
  std::size_t bytes = 0;
  const int made = create(&program, kernel, "grow.cu", 0, nullptr, nullptr);
  const int compiled = made == 0 ? compile(program, 1, options) : made;
  if (compiled != 0 || size(program, &bytes) != 0 || bytes == 0) {
    std::fprintf(stderr, "NVRTC compiles nothing: error %d\n", compiled);
    return 1;
  }
  std::printf("NVRTC compiled a kernel of %zu bytes, beside cuDNN %zu\n", bytes, version());
  return 0;
}
