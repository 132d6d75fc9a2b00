// SPDX-License-Identifier: Apache-2.0
#include "device/device.hpp"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <utility>

namespace trireme::device {
namespace {

// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): of the whole process
std::atomic<bool> keeps{false};

}  // namespace

void keep_all_memory() noexcept {
  keeps.store(true, std::memory_order_relaxed);
}

bool keeps_all_memory() noexcept {
  return keeps.load(std::memory_order_relaxed);
}

View Buffer::view(DType dtype) const {
  TRIREME_EXPECT(bytes_ % size_bytes(dtype) == 0, "{} bytes viewed as {}", bytes_, name(dtype));
  return {data_, static_cast<std::int64_t>(bytes_ / size_bytes(dtype)), dtype};
}

View Buffer::view(DType dtype, std::size_t offset, std::int64_t elements) const {
  TRIREME_EXPECT(elements >= 0 && offset <= bytes_ &&
                     static_cast<std::size_t>(elements) <= (bytes_ - offset) / size_bytes(dtype),
                 "{} elements of {} from byte {} of a buffer of {} bytes", elements, name(dtype),
                 offset, bytes_);
  return {data_ + offset, elements, dtype};
}

void Device::note(std::string text) {
  const std::lock_guard lock(notes_mutex_);
  if (std::ranges::find(notes_, text) == notes_.end())
    notes_.push_back(std::move(text));
}

std::vector<std::string> Device::take_notes() {
  const std::lock_guard lock(notes_mutex_);
  const auto first = notes_.begin() + static_cast<std::ptrdiff_t>(notes_taken_);
  notes_taken_ = notes_.size();
  return {first, notes_.end()};
}

void load_kernels_eagerly() {
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);  // NOLINT(concurrency-mt-unsafe): at the start
}

}  // namespace trireme::device
