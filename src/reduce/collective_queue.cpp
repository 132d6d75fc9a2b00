// SPDX-License-Identifier: Apache-2.0
#include "reduce/collective_queue.hpp"

#include <algorithm>

namespace trireme::reduce {

CollectiveQueue::CollectiveQueue(device::Device& device, bool overlaps, std::size_t most)
    : stream_(device.make_stream(
          overlaps ? device::StreamMode::concurrent : device::StreamMode::inlined,
          "communication")) {
  held_.reserve(most);
}

void CollectiveQueue::push(Source& source, BucketIndex bucket) {
  if (holds_)
    held_.push_back({&source, bucket});
  else
    source.start(bucket);
}

void CollectiveQueue::about_to_wait(const Source& source, BucketIndex bucket) {
  const auto last =
      std::find_if(held_.begin() + static_cast<std::ptrdiff_t>(next_), held_.end(),
                   [&](const Held& one) { return one.source == &source && one.bucket == bucket; });
  if (last == held_.end())
    return;
  const auto end = static_cast<std::size_t>(last - held_.begin()) + 1;
  while (next_ < end) {
    const Held next = held_[next_++];
    next.source->start(next.bucket);
  }
  if (next_ == held_.size()) {
    held_.clear();
    next_ = 0;
  }
}

}  // namespace trireme::reduce
