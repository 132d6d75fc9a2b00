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
  const auto last = std::find_if(held_.begin(), held_.end(), [&](const Entry& one) {
    return one.source == &source && one.bucket == bucket;
  });
  if (last == held_.end())
    return;
  const auto begins = [alone = source.overtakes()](const Entry& one) {
    return !alone || one.source->overtakes();
  };
  for (auto next = held_.begin(); next <= last; ++next)
    if (begins(*next))
      next->source->start(next->bucket);
  held_.erase(std::remove_if(held_.begin(), last + 1, begins), last + 1);
}

void CollectiveQueue::forget(const Source& source) {
  std::erase_if(held_, [&](const Entry& one) { return one.source == &source; });
}

}  // namespace trireme::reduce
