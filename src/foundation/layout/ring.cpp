// SPDX-License-Identifier: Apache-2.0
#include "layout/ring.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/round_up.hpp"

namespace trireme::layout {

Ring::Ring(const Plan& plan, std::size_t num_shared) : slot_of_(plan.buckets().size()) {
  TRIREME_EXPECT(plan.options().order == BucketOrder::reverse,
                 "shared slots with buckets in {} order", word(plan.options().order));
  const auto is_dedicated = [&](const Bucket& bucket) { return plan.is_dedicated(bucket); };
  const auto num_sharing = plan.buckets().size() - static_cast<std::size_t>(std::ranges::count_if(
                                                       plan.buckets(), is_dedicated));
  TRIREME_EXPECT(num_shared > 0 || num_sharing == 0, "{} buckets share no slot", num_sharing);
  slots_.resize(std::min(num_sharing, num_shared));
  std::size_t next = 0;
  for (std::size_t b = 0; b < slot_of_.size(); ++b) {
    const Bucket& bucket = plan.buckets()[b];
    if (is_dedicated(bucket)) {
      slot_of_[b] = slots_.size();
      slots_.push_back({0, bucket.elements});
      continue;
    }
    slot_of_[b] = next++ % num_shared;
    Slot& slot = slots_[slot_of_[b]];
    slot.elements = std::max(slot.elements, bucket.elements);
  }
  for (std::size_t s = 1; s < slots_.size(); ++s)
    slots_[s].begin = rounded_up(slots_[s - 1].begin + slots_[s - 1].elements, start_alignment);
}

std::int64_t Ring::elements() const {
  return slots_.back().begin + slots_.back().elements;
}

}  // namespace trireme::layout
