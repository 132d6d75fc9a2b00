// SPDX-License-Identifier: Apache-2.0
// The handle of a CUDA stream, without CUDA's headers, for code that only passes it on.
#pragma once

struct CUstream_st;

namespace trireme::device::cuda {

/// cudaStream_t.
using RawStream = CUstream_st*;

}  // namespace trireme::device::cuda
