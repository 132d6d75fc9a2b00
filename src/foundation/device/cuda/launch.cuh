// SPDX-License-Identifier: Apache-2.0
// Launches kernels. All kernels are launched by launch().
//
// 1. A launch that fails is a DeviceError that names the kernel.
// 2. Audit builds also wait for the kernel, so that a failure inside it names it as well; except
//    during a capture, when nothing runs.
// 3. Arguments are converted to the kernel's parameters as in a call.
#pragma once

#include <utility>

#include <cuda_runtime.h>

#include "device/cuda/raw_stream.hpp"

namespace trireme::device::cuda {

struct LaunchShape {
  dim3 blocks, threads;
};

void check_launch(cudaError_t status, const char* name, RawStream stream);

template <class... Parameters, class... Arguments>
void launch(const char* name,
            void (*kernel)(Parameters...),
            const LaunchShape& shape,
            RawStream stream,
            Arguments&&... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = shape.blocks;
  config.blockDim = shape.threads;
  config.stream = stream;
  check_launch(cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...), name,
               stream);
}

}  // namespace trireme::device::cuda
