// SPDX-License-Identifier: Apache-2.0
// The one way to start a kernel.
//
// 1. A launch that failed is a DeviceError that names the kernel.
// 2. Audit builds wait for the kernel as well, so that its own failure names it too; not while the
//    stream is captured, when nothing runs yet.
// 3. Arguments are converted to the kernel's parameters as in a call.
#pragma once

#include <utility>

#include <cuda_runtime.h>

#include "device/cuda/raw_stream.hpp"

namespace trireme::device::cuda {

/// How many blocks of how many threads.
struct LaunchShape {
  dim3 blocks, threads;
};

/// What a launch on `stream` returned.
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
