// SPDX-License-Identifier: Apache-2.0
// CUDA's functions for memory.
//
// 1. GPU memory and page-locked memory are ordinary memory of the process with exactly the size
//    requested, so that the address sanitizer detects every access beyond it. New memory holds
//    signalling NaN (of fp32 and of bf16), never zero.
// 2. Copies follow CUDA's rules. From pageable memory, the bytes are read before the call returns;
//    to pageable memory, the call waits. Between page-locked memory and a GPU, the call does not
//    wait, and the host must not touch the memory until the copy is done.
// 3. Freeing memory waits for the whole GPU, as cudaFree does.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include <cuda_runtime_api.h>

#include "device.hpp"
#include "gpu.hpp"
#include "queue.hpp"

namespace emulated {
namespace {

enum class Kind : std::uint8_t { pageable, page_locked, gpu };

struct Allocation {
  std::size_t bytes;
  Kind kind;
};

struct Allocations {
  std::mutex mutex;
  std::map<const char*, Allocation> known;
  std::size_t on_gpu = 0;
};

Allocations& allocations() {
  static auto* all = new Allocations;
  return *all;
}

/// The allocation that contains `pointer` or ends at it.
const Allocation* find(const Allocations& all, const void* pointer) {
  const auto* at = static_cast<const char*>(pointer);
  auto next = all.known.upper_bound(at);
  if (next == all.known.begin())
    return nullptr;
  const auto& [begin, allocation] = *std::prev(next);
  return at <= begin + allocation.bytes ? &allocation : nullptr;
}

Kind kind_of(const void* pointer) {
  auto& all = allocations();
  const std::lock_guard lock(all.mutex);
  const auto* found = find(all, pointer);
  return found == nullptr ? Kind::pageable : found->kind;
}

/// 0x7fa0 is a signalling NaN as bf16, and 0x7fa07fa0 as fp32. Only the ends of a long block are
/// filled: the middle would take time, and new pages come from the system anyway.
void fill_with_garbage(char* memory, std::size_t bytes) {
  constexpr std::size_t most = std::size_t{1} << 20U;
  const auto fill = [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i)
      memory[i] = static_cast<char>(i % 2 == 0 ? 0xa0 : 0x7f);
  };
  fill(0, std::min(bytes, most));
  if (bytes > most)
    fill(std::max(most, bytes - most), bytes);
}

cudaError_t allocate(void** pointer, std::size_t bytes, Kind kind) {
  Gpu& gpu = Gpu::instance();
  {
    const auto held = gpu.lock();
    if (const auto refused = refuse_during_capture(gpu); refused != cudaSuccess)
      return refused;
  }
  auto& all = allocations();
  const std::lock_guard lock(all.mutex);
  constexpr std::size_t alignment = 256;
  if (bytes > total_bytes || (kind == Kind::gpu && all.on_gpu + bytes > total_bytes) ||
      posix_memalign(pointer, alignment, bytes) != 0)
    return told(cudaErrorMemoryAllocation);
  fill_with_garbage(static_cast<char*>(*pointer), bytes);
  all.known[static_cast<const char*>(*pointer)] = {bytes, kind};
  if (kind == Kind::gpu)
    all.on_gpu += bytes;
  return cudaSuccess;
}

cudaError_t forget(void* pointer, Kind kind) {
  auto& all = allocations();
  const std::lock_guard lock(all.mutex);
  const auto found = all.known.find(static_cast<const char*>(pointer));
  if (found == all.known.end() || found->second.kind != kind)
    return told(cudaErrorInvalidValue);
  if (kind == Kind::gpu)
    all.on_gpu -= found->second.bytes;
  all.known.erase(found);
  std::free(pointer);
  return cudaSuccess;
}

cudaError_t release(void* pointer, Kind kind) {
  if (pointer == nullptr)
    return cudaSuccess;
  Gpu& gpu = Gpu::instance();
  auto held = gpu.lock();
  if (const auto refused = refuse_during_capture(gpu); refused != cudaSuccess)
    return refused;
  gpu.wait_for_all(held);
  held.unlock();
  return forget(pointer, kind);
}

bool direction_fits(cudaMemcpyKind kind, Kind to, Kind from) {
  const bool to_gpu = to == Kind::gpu, from_gpu = from == Kind::gpu;
  switch (kind) {
    case cudaMemcpyHostToHost:
      return !to_gpu && !from_gpu;
    case cudaMemcpyHostToDevice:
      return to_gpu && !from_gpu;
    case cudaMemcpyDeviceToHost:
      return !to_gpu && from_gpu;
    case cudaMemcpyDeviceToDevice:
      return to_gpu && from_gpu;
    case cudaMemcpyDefault:
      return true;
  }
  return false;
}

bool is_capturing(cudaStream_t stream) {
  const auto held = Gpu::instance().lock();
  return Gpu::instance().knows(stream) && stream->capture != nullptr;
}

}  // namespace

bool reaches(const void* pointer) {
  return kind_of(pointer) != Kind::pageable;
}

}  // namespace emulated

using emulated::Kind;
using emulated::told;

cudaError_t cudaMalloc(void** pointer, std::size_t bytes) {
  return emulated::allocate(pointer, bytes, Kind::gpu);
}

cudaError_t cudaFree(void* pointer) {
  return emulated::release(pointer, Kind::gpu);
}

// Pool memory is allocated at once and freed in stream order.
cudaError_t cudaMallocAsync(void** pointer, std::size_t bytes, cudaStream_t /*stream*/) {
  return cudaMalloc(pointer, bytes);
}

cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream) {
  return emulated::enqueue(stream, "cudaFreeAsync", [pointer] {
    if (emulated::forget(pointer, Kind::gpu) != cudaSuccess)
      emulated::fail("cudaFreeAsync of %p, which is not memory of a GPU", pointer);
  });
}

cudaError_t cudaHostAlloc(void** pointer, std::size_t bytes, unsigned /*flags*/) {
  return emulated::allocate(pointer, bytes, Kind::page_locked);
}

cudaError_t cudaFreeHost(void* pointer) {
  return emulated::release(pointer, Kind::page_locked);
}

cudaError_t cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total_bytes) {
  auto& all = emulated::allocations();
  const std::lock_guard lock(all.mutex);
  *total_bytes = emulated::total_bytes;
  *free_bytes = emulated::total_bytes - all.on_gpu;
  return cudaSuccess;
}

// Runs on CUDA's default stream. That is not ordered with non-blocking streams, and all streams
// here are non-blocking.
cudaError_t cudaMemset(void* to, int value, std::size_t bytes) {
  static const cudaStream_t unordered = [] {
    cudaStream_t made = nullptr;
    static_cast<void>(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking));
    return made;
  }();
  return cudaMemsetAsync(to, value, bytes, unordered);
}

cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  if (!emulated::reaches(to))
    return told(cudaErrorInvalidValue);
  return emulated::enqueue(stream, "memset", [=] { std::memset(to, value, bytes); });
}

cudaError_t cudaMemcpyAsync(
    void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  const Kind to_kind = emulated::kind_of(to), from_kind = emulated::kind_of(from);
  if (!emulated::direction_fits(kind, to_kind, from_kind))
    return told(cudaErrorInvalidMemcpyDirection);
  const bool captured = emulated::is_capturing(stream);
  if (from_kind == Kind::pageable && !captured) {
    const auto* begin = static_cast<const char*>(from);
    const auto staged = std::make_shared<std::vector<char>>(begin, begin + bytes);
    const auto status =
        emulated::enqueue(stream, "copy", [=] { std::memcpy(to, staged->data(), staged->size()); });
    return status == cudaSuccess && to_kind == Kind::pageable ? cudaStreamSynchronize(stream)
                                                              : status;
  }
  const auto status = emulated::enqueue(stream, "copy", [=] { std::memcpy(to, from, bytes); });
  return status == cudaSuccess && to_kind == Kind::pageable && !captured
             ? cudaStreamSynchronize(stream)
             : status;
}
