// SPDX-License-Identifier: Apache-2.0
// TRIREME_CUDA(call): a CUDA runtime call whose failure is a DeviceError with the statement, CUDA's
// name and message, and the source line.
#pragma once

#include <cuda_runtime_api.h>

namespace trireme::device::cuda {

/// Throws DeviceError unless `status` is cudaSuccess. Except for `out of memory`, a failure stays
/// with the CUDA context, and every later call reports it again.
void check(cudaError_t status,
           const char* statement,
           const char* file = __builtin_FILE(),
           int line = __builtin_LINE());

/// "cudaErrorNoDevice: no CUDA-capable device is detected".
const char* words_of(cudaError_t status);

}  // namespace trireme::device::cuda

#define TRIREME_CUDA(call) ::trireme::device::cuda::check((call), #call)
