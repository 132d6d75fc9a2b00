// SPDX-License-Identifier: Apache-2.0
#include "device/device.hpp"

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace trireme::device {

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
