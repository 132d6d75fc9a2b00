// SPDX-License-Identifier: Apache-2.0
// The CUDA part of device.hpp in a build without CUDA.
#include "base/error.hpp"
#include "device/device.hpp"

namespace trireme::device {

CudaCensus count_cuda_devices() {
  return {0, "this build has no CUDA"};
}

std::vector<GpuLink> links_between_gpus() {
  return {};
}

std::unique_ptr<Device> make_cuda_device(int index) {
  throw DeviceError("CUDA", fmt::format("use device {}", index), "this build has no CUDA");
}

}  // namespace trireme::device
