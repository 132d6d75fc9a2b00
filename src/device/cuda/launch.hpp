// SPDX-License-Identifier: Apache-2.0
// What a file of kernels needs to know of streams; light, because nvcc reads it.
#pragma once

struct CUstream_st;

namespace trireme::device::cuda {

/// cudaStream_t.
using RawStream = CUstream_st*;

/// Throws DeviceError naming the kernel when its launch failed; audit builds wait for the kernel as
/// well. Call it right behind the launch.
void check_launch(const char* kernel);

}  // namespace trireme::device::cuda
