// SPDX-License-Identifier: Apache-2.0
// TRIREME_CUDA(call): a CUDA runtime call whose failure is a DeviceError with the statement, CUDA's
// name and message, and our place.
#pragma once

#include <cuda_runtime_api.h>

namespace trireme::device::cuda {

/// Memory that does not suffice is `out of memory`; other failures stay with the context, and every
/// later call reports them again.
void check(cudaError_t status, const char* statement, const char* file, int line);

/// "cudaErrorNoDevice: no CUDA-capable device is detected".
const char* words_of(cudaError_t status);

}  // namespace trireme::device::cuda

#define TRIREME_CUDA(call) ::trireme::device::cuda::check((call), #call, __FILE__, __LINE__)
