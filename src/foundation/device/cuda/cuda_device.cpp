// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>

#include <cuda_runtime_api.h>

#include "base/error.hpp"
#include "base/error_line.hpp"
#include "base/text.hpp"
#include "device/cuda/check.hpp"
#include "device/cuda/cuda_stream.hpp"
#include "device/cuda/handle.hpp"
#include "device/device.hpp"

namespace trireme::device {
namespace {

/// The UUID as nvidia-smi prints it: "GPU-c2c2…".
std::string uuid_text(const cudaUUID_t& uuid) {
  std::string text = "GPU";
  for (std::size_t i = 0; i < sizeof uuid.bytes; ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10)
      text += '-';
    text += fmt::format("{:02x}", static_cast<unsigned char>(uuid.bytes[i]));
  }
  return text;
}

/// Frees page-locked host memory.
class PinnedSource final : public MemorySource {
  void release(std::byte* data, std::size_t /*bytes*/) noexcept override {
    if (const auto status = cudaFreeHost(data);
        status != cudaSuccess && status != cudaErrorCudartUnloading)
      error_line("warning: cudaFreeHost failed: {}", cuda::words_of(status));
  }
};

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(int gpu) : gpu_(gpu) {
    TRIREME_CUDA(cudaSetDevice(gpu_));
    TRIREME_CUDA(cudaGetDeviceProperties(&properties_, gpu_));
    if (properties_.major < 8)
      throw DeviceError(properties_.name, "use it",
                        fmt::format("compute capability {}.{}; trireme needs 8.0 or later",
                                    properties_.major, properties_.minor));
    clock_ = std::make_unique<cuda::Clock>(gpu_);
    housekeeping_ = std::make_unique<cuda::Stream>(*this, gpu_, *clock_, StreamMode::concurrent,
                                                   "housekeeping");
  }

  [[nodiscard]] Kind kind() const override { return Kind::cuda; }

  [[nodiscard]] std::string description() const override {
    return fmt::format("{}, device {}, {}", properties_.name, gpu_, uuid());
  }

  [[nodiscard]] std::string uuid() const override { return uuid_text(properties_.uuid); }

  [[nodiscard]] MemoryInfo memory() const override {
    make_current();
    MemoryInfo info;
    TRIREME_CUDA(cudaMemGetInfo(&info.free_bytes, &info.total_bytes));
    return info;
  }

  std::unique_ptr<Stream> make_stream(StreamMode mode, const std::string& name) override {
    make_current();
    return std::make_unique<cuda::Stream>(*this, gpu_, *clock_, mode, name);
  }

  std::unique_ptr<Event> make_event() override {
    make_current();
    return std::make_unique<cuda::Event>(*clock_);
  }

  Buffer allocate(std::size_t bytes, std::string_view what) override {
    if (bytes == 0)
      return {};
    make_current();
    void* at = nullptr;
    expect_memory(cudaMalloc(&at, bytes), "GPU memory", bytes, what);
    Buffer buffer(*this, static_cast<std::byte*>(at), bytes);
    const cudaStream_t stream = housekeeping_->activate();
    TRIREME_CUDA(cudaMemsetAsync(at, 0, bytes, stream));
    TRIREME_CUDA(cudaStreamSynchronize(stream));
    return buffer;
  }

  Buffer allocate_shared_with_host(std::size_t bytes, std::string_view what) override {
    if (bytes == 0)
      return {};
    make_current();
    void* at = nullptr;
    expect_memory(cudaHostAlloc(&at, bytes, cudaHostAllocPortable | cudaHostAllocMapped),
                  "page-locked memory", bytes, what);
    std::fill_n(static_cast<std::byte*>(at), bytes, std::byte{0});
    return {pinned_, static_cast<std::byte*>(at), bytes};
  }

  void copy(View to, ConstView from, Stream& stream) override {
    TRIREME_EXPECT(to.elements == from.elements && to.dtype == from.dtype, "copy of {} {} to {} {}",
                   from.elements, name(from.dtype), to.elements, name(to.dtype));
    if (!to.empty())
      TRIREME_CUDA(cudaMemcpyAsync(to.data, from.data, from.bytes(), cudaMemcpyDefault,
                                   cuda::handle_of(stream)));
  }

  void fill_zero(View to, Stream& stream) override {
    if (!to.empty())
      TRIREME_CUDA(cudaMemsetAsync(to.data, 0, to.bytes(), cuda::handle_of(stream)));
  }

  void make_current() const { TRIREME_CUDA(cudaSetDevice(gpu_)); }

  std::shared_ptr<void> kept(std::type_index type, std::shared_ptr<void> (*make)()) {
    make_current();
    auto& slot = kept_[type];
    if (!slot)
      slot = make();
    return slot;
  }

 private:
  static void expect_memory(cudaError_t status,
                            const char* kind,
                            std::size_t bytes,
                            std::string_view what) {
    cuda::check(status, fmt::format("allocate {} ({} bytes) of {} for {}", bytes_text(bytes), bytes,
                                    kind, what)
                            .c_str());
  }

  void release(std::byte* data, std::size_t /*bytes*/) noexcept override {
    if (const auto status = cudaFree(data);
        status != cudaSuccess && status != cudaErrorCudartUnloading)
      error_line("warning: cudaFree failed: {}", cuda::words_of(status));
  }

  const int gpu_;
  cudaDeviceProp properties_{};
  PinnedSource pinned_;
  // Destroyed in reverse order.
  std::unique_ptr<cuda::Clock> clock_;
  std::unique_ptr<cuda::Stream> housekeeping_;
  std::map<std::type_index, std::shared_ptr<void>> kept_;
};

CudaDevice& device_of(Device& device) {
  auto* mine = dynamic_cast<CudaDevice*>(&device);
  TRIREME_EXPECT(mine != nullptr, "a CUDA device was {}", "expected");
  return *mine;
}

}  // namespace

CudaCensus count_cuda_devices() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    int driver = 0;
    if (cudaDriverGetVersion(&driver) == cudaSuccess && driver == 0)
      return {0, "no NVIDIA driver is installed"};
    return {0, cuda::words_of(status)};
  }
  return {count, count == 0 ? "no GPU is visible" : ""};
}

std::vector<GpuLink> links_between_gpus() {
  const int count = count_cuda_devices().count;
  std::vector<std::string> uuids;
  for (int gpu = 0; gpu < count; ++gpu) {
    cudaDeviceProp properties{};
    TRIREME_CUDA(cudaGetDeviceProperties(&properties, gpu));
    uuids.push_back(uuid_text(properties.uuid));
  }
  std::vector<GpuLink> links;
  for (int from = 0; from < count; ++from)
    for (int to = 0; to < count; ++to) {
      if (from == to)
        continue;
      int access = 0, atomics = 0, rank = 0;
      TRIREME_CUDA(cudaDeviceCanAccessPeer(&access, from, to));
      TRIREME_CUDA(
          cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported, from, to));
      TRIREME_CUDA(cudaDeviceGetP2PAttribute(&rank, cudaDevP2PAttrPerformanceRank, from, to));
      links.push_back({uuids[static_cast<std::size_t>(from)], uuids[static_cast<std::size_t>(to)],
                       access != 0, atomics != 0, rank});
    }
  return links;
}

std::unique_ptr<Device> make_cuda_device(int index) {
  return std::make_unique<CudaDevice>(index);
}

namespace cuda {

void make_current(Device& device) {
  device_of(device).make_current();
}

std::shared_ptr<void> kept_with(Device& device,
                                std::type_index type,
                                std::shared_ptr<void> (*make)()) {
  return device_of(device).kept(type, make);
}

}  // namespace cuda
}  // namespace trireme::device
