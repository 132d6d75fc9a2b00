// SPDX-License-Identifier: Apache-2.0
#include "layout/ring.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/round_up.hpp"

namespace trireme::layout {

Ring::Ring(const Plan& plan, std::size_t slots_in_turns) : slot_of_(plan.buckets().size()) {
  TRIREME_EXPECT(plan.options().order == BucketOrder::reverse,
                 "memory takes turns where buckets are in {} order", word(plan.options().order));
  const auto for_itself = [&](const Bucket& bucket) { return plan.for_itself(bucket); };
  const auto taking_turns = plan.buckets().size() - static_cast<std::size_t>(std::ranges::count_if(
                                                        plan.buckets(), for_itself));
  TRIREME_EXPECT(slots_in_turns > 0 || taking_turns == 0, "{} buckets take turns in no slot",
                 taking_turns);
  slots_.resize(std::min(taking_turns, slots_in_turns));
  std::size_t next = 0;
  for (std::size_t b = 0; b < slot_of_.size(); ++b) {
    const Bucket& bucket = plan.buckets()[b];
    if (for_itself(bucket)) {
      slot_of_[b] = slots_.size();
      slots_.push_back({0, bucket.elements});
      continue;
    }
    slot_of_[b] = next++ % slots_in_turns;
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
