// SPDX-License-Identifier: Apache-2.0
// Where buckets lie whose memory takes turns: they share a few slots, one after another.
//
// Gradients (parallel.shard: gradients or parameters): a bucket that is reduced when it is complete
// needs memory only while it is written and reduced. Backward completes buckets in the order of the
// layout. While one is written the next one may be begun (the backward of a norm writes the bias of
// the layer before it), and the one before is being reduced: hence three slots, taken in turns. A
// bucket whose parameter has a bucket of its own (a tied embedding: the head writes it first, the
// embedding last) keeps a slot for itself.
//
// Parameters (parallel.shard: parameters): a bucket is whole while a layer reads it, and how many
// slots that takes is a question of the layers (residency.hpp).
//
// 1. A slot is as large as the largest bucket that lies in it; so are views of a bucket that never
//    change, whose turn it is or not.
// 2. Slots begin at multiples of 64 elements and, as buckets do, at multiples of the granule where
//    that is larger: shards are aligned as they are in the flat space.
// 3. As many buckets in a row as there are slots in turns have different ones.
//
// Pure arithmetic on the plan, the same on every rank. Constant after construction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/index.hpp"
#include "layout/plan.hpp"

namespace trireme::layout {

class Ring {
 public:
  /// Those of gradients.
  static constexpr std::size_t slots_of_gradients = 3;

  /// Buckets that are not for themselves take turns in `slots_in_turns`. Requires: buckets in the
  /// order in which backward completes them (BucketOrder::reverse).
  explicit Ring(const Plan& plan, std::size_t slots_in_turns = slots_of_gradients);

  [[nodiscard]] std::size_t num_slots() const { return slots_.size(); }
  [[nodiscard]] std::size_t slot(BucketIndex bucket) const { return slot_of_[at(bucket)]; }
  /// Of the bucket's slot, in elements from the start of the memory.
  [[nodiscard]] std::int64_t begin(BucketIndex bucket) const { return slots_[slot(bucket)].begin; }
  /// Of all slots, and of what lies between them.
  [[nodiscard]] std::int64_t elements() const;

 private:
  struct Slot {
    std::int64_t begin = 0, elements = 0;
  };

  std::vector<Slot> slots_;
  std::vector<std::size_t> slot_of_;  // by bucket
};

}  // namespace trireme::layout
