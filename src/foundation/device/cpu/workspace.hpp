// SPDX-License-Identifier: Apache-2.0
// Scratch memory of the operations of one CPU stream, such as the packed operands of matrix
// products. Operations of a stream run one after another and share it, so it has the size that the
// largest of them needs, and is more often in the caches.
//
// 1. It grows when an operation needs more, and is kept until the stream is destroyed. Its content
//    after reserve() is undefined.
// 2. Only the operation that runs on the stream uses it. reserve() is called outside of parallel
//    regions.
// 3. When it has stopped growing, a thread has the same part in every operation, so that the part
//    stays in the caches of the thread's core.
// 4. A graph uses the workspace of the stream that captured it, as with CUDA's libraries.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/round_up.hpp"
#include "device/device.hpp"

namespace trireme::device::cpu {

/// Memory that an operation needs, in bytes.
struct WorkspaceSize {
  std::int64_t shared = 0;      ///< used by all threads
  std::int64_t per_thread = 0;  ///< used by each of `threads` threads
  int threads = 0;
};

class Workspace {
 public:
  explicit Workspace(Device& device) : device_(device) {}

  /// Throws DeviceError when there is not enough memory.
  void reserve(const WorkspaceSize& wanted) {
    constexpr std::int64_t page = 4096;
    size_.shared = std::max(size_.shared, rounded_up(wanted.shared, page));
    size_.per_thread = std::max(size_.per_thread, rounded_up(wanted.per_thread, page));
    size_.threads = std::max(size_.threads, wanted.threads);
    const auto bytes = static_cast<std::size_t>(size_.shared + size_.per_thread * size_.threads);
    if (bytes <= memory_.bytes())
      return;
    memory_ = {};  // free the old memory first
    memory_ = device_.allocate(bytes, "workspace of operations");
  }
  [[nodiscard]] std::byte* shared() const { return memory_.data(); }
  [[nodiscard]] std::byte* of_thread(int thread) const {
    return memory_.data() + size_.shared + size_.per_thread * thread;
  }

 private:
  Device& device_;
  WorkspaceSize size_;
  Buffer memory_;
};

}  // namespace trireme::device::cpu
