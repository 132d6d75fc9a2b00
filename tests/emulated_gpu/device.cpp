// SPDX-License-Identifier: Apache-2.0
// CUDA's functions for devices and errors.
#include "device.hpp"

#include <cstdio>

#include <cuda_runtime_api.h>

#include "gpu.hpp"
#include "settings.hpp"

namespace emulated {
namespace {

thread_local int current = 0;
thread_local cudaError_t last_error = cudaSuccess;

}  // namespace

int current_gpu() {
  return current;
}

cudaError_t told(cudaError_t status) {
  if (status != cudaSuccess)
    last_error = status;
  return status;
}

}  // namespace emulated

using emulated::told;

cudaError_t cudaGetLastError() {
  const cudaError_t last = emulated::last_error;
  emulated::last_error = cudaSuccess;
  return last;
}

#define EMULATED_ERRORS(X)                                                                        \
  X(cudaSuccess, "no error")                                                                      \
  X(cudaErrorInvalidValue, "invalid argument")                                                    \
  X(cudaErrorMemoryAllocation, "out of memory")                                                   \
  X(cudaErrorCudartUnloading, "driver shutting down")                                             \
  X(cudaErrorInvalidConfiguration, "invalid configuration argument")                              \
  X(cudaErrorInsufficientDriver, "CUDA driver version is insufficient for CUDA runtime version")  \
  X(cudaErrorNoDevice, "no CUDA-capable device is detected")                                      \
  X(cudaErrorInvalidDevice, "invalid device ordinal")                                             \
  X(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy")                         \
  X(cudaErrorInvalidResourceHandle, "invalid resource handle")                                    \
  X(cudaErrorIllegalState, "the operation cannot be performed in the present state")              \
  X(cudaErrorNotReady, "device not ready")                                                        \
  X(cudaErrorNotSupported, "operation not supported")                                             \
  X(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing")        \
  X(cudaErrorStreamCaptureInvalidated, "operation failed due to a previous error during capture") \
  X(cudaErrorStreamCaptureWrongThread,                                                            \
    "attempt to terminate a thread-local capture sequence from another thread")

const char* cudaGetErrorName(cudaError_t status) {
  switch (status) {
#define EMULATED_NAME(name, words) \
  case name:                       \
    return #name;
    EMULATED_ERRORS(EMULATED_NAME)
#undef EMULATED_NAME
    default:
      return "unrecognized error code";
  }
}

const char* cudaGetErrorString(cudaError_t status) {
  switch (status) {
#define EMULATED_WORDS(name, words) \
  case name:                        \
    return words;
    EMULATED_ERRORS(EMULATED_WORDS)
#undef EMULATED_WORDS
    default:
      return "unrecognized error code";
  }
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = emulated::num_gpus() == 0 ? 0 : CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = emulated::num_gpus();
  return told(*count == 0 ? cudaErrorInsufficientDriver : cudaSuccess);
}

cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= emulated::num_gpus())
    return told(cudaErrorInvalidDevice);
  emulated::current = device;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  *device = emulated::current;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* lowest, int* highest) {
  *lowest = emulated::lowest_priority;
  *highest = emulated::highest_priority;
  return cudaSuccess;
}

/// All GPUs use memory of one process, so each can access the memory of the others.
cudaError_t cudaDeviceCanAccessPeer(int* can, int from, int to) {
  return cudaDeviceGetP2PAttribute(can, cudaDevP2PAttrAccessSupported, from, to);
}

cudaError_t cudaDeviceGetP2PAttribute(int* value, cudaDeviceP2PAttr attribute, int from, int to) {
  if (from < 0 || to < 0 || from >= emulated::num_gpus() || to >= emulated::num_gpus())
    return told(cudaErrorInvalidDevice);
  if (from == to)
    return told(cudaErrorInvalidValue);
  *value = attribute == cudaDevP2PAttrPerformanceRank ? 0 : 1;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device < 0 || device >= emulated::num_gpus())
    return told(cudaErrorInvalidDevice);
  *properties = {};
  std::snprintf(properties->name, sizeof properties->name, "emulated GPU");
  for (char& byte : properties->uuid.bytes) byte = static_cast<char>(device);
  properties->major = 9;
  properties->multiProcessorCount = 132;
  properties->warpSize = 32;
  properties->maxThreadsPerBlock = 1024;
  properties->sharedMemPerBlock = std::size_t{48} << 10U;
  properties->totalGlobalMem = emulated::total_bytes;
  return cudaSuccess;
}
