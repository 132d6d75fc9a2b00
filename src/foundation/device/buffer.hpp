// SPDX-License-Identifier: Apache-2.0
// Owned memory. A Buffer is move-only and returns its bytes to the source that allocated it.
// Sources are devices, communicators (memory that peers can read) and test doubles.
//
// 1. New memory is zero.
// 2. The start is aligned to at least 128 bytes (two cache lines; NCCL's LL128 line), or to 2 MiB
//    if the source uses huge pages.
// 3. A source must outlive its buffers.
// 4. After keep_all_memory() nothing is freed.
#pragma once

#include <cstddef>
#include <utility>

#include "base/view.hpp"

namespace trireme::device {

class MemorySource {
 public:
  virtual ~MemorySource() = default;

 private:
  friend class Buffer;
  /// Called once per buffer; must not throw.
  virtual void release(std::byte* data, std::size_t bytes) noexcept = 0;
};

/// From now on no buffer of this process frees its memory. For a process that ends after a failure:
/// active messages may still be written into buckets and scratch.
void keep_all_memory() noexcept;
[[nodiscard]] bool keeps_all_memory() noexcept;

class Buffer {
 public:
  Buffer() = default;
  Buffer(MemorySource& source, std::byte* data, std::size_t bytes)
      : source_(&source), data_(data), bytes_(bytes) {}
  Buffer(Buffer&& other) noexcept
      : source_(std::exchange(other.source_, nullptr)),
        data_(std::exchange(other.data_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    Buffer taken(std::move(other));
    std::swap(source_, taken.source_);
    std::swap(data_, taken.data_);
    std::swap(bytes_, taken.bytes_);
    return *this;
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() {
    if (source_ != nullptr && !keeps_all_memory())
      source_->release(data_, bytes_);
  }

  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  [[nodiscard]] std::byte* data() const { return data_; }
  /// The whole buffer as elements of `dtype`; the size must be a multiple of the element size.
  [[nodiscard]] View view(DType dtype) const;
  /// `elements` elements of `dtype`, starting at byte `offset`.
  [[nodiscard]] View view(DType dtype, std::size_t offset, std::int64_t elements) const;

 private:
  MemorySource* source_ = nullptr;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace trireme::device
