// SPDX-License-Identifier: Apache-2.0
// A stream as those know it who only pass it on: without CUDA's headers, and light.
#pragma once

struct CUstream_st;

namespace trireme::device::cuda {

/// cudaStream_t.
using RawStream = CUstream_st*;

}  // namespace trireme::device::cuda
