// SPDX-License-Identifier: Apache-2.0
// A stream's handle for code that only passes it on: without CUDA's headers.
#pragma once

struct CUstream_st;

namespace trireme::device::cuda {

/// cudaStream_t.
using RawStream = CUstream_st*;

}  // namespace trireme::device::cuda
