// SPDX-License-Identifier: Apache-2.0
// The memory of buckets that share a few slots, one after another.
//
// Gradients (parallel.shard: gradients or parameters): a bucket that is reduced when it is complete
// needs memory only while it is written and reduced. Backward completes buckets in the order of the
// layout. While one bucket is written, the next one may be written as well (the backward of a norm
// writes the bias of the layer before it), and the previous one is being reduced; hence three
// shared slots. A dedicated bucket (a tied embedding: the head writes it first, the embedding last)
// has its own slot.
//
// Parameters (parallel.shard: parameters): a bucket is whole while a layer reads it, and the number
// of slots depends on the layers (residency.hpp).
//
// 1. A slot has the size of its largest bucket, so the view of a bucket never changes, even while
//    another bucket uses the slot.
// 2. Slots begin at multiples of 64 elements and, as buckets do, at multiples of the granule if
//    that is larger: shards are aligned as they are in the flat space.
// 3. Consecutive slot-sharing buckets have different slots, up to the number of shared slots.
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
  /// Number of shared slots of gradients.
  static constexpr std::size_t gradient_slots = 3;

  /// All buckets except dedicated ones share `num_shared` slots. Requires: buckets in the order in
  /// which backward completes them (BucketOrder::reverse).
  explicit Ring(const Plan& plan, std::size_t num_shared = gradient_slots);

  [[nodiscard]] std::size_t num_slots() const { return slots_.size(); }
  [[nodiscard]] std::size_t slot(BucketIndex bucket) const { return slot_of_[at(bucket)]; }
  /// Start of the bucket's slot, in elements from the start of the memory.
  [[nodiscard]] std::int64_t begin(BucketIndex bucket) const { return slots_[slot(bucket)].begin; }
  /// Elements of all slots and of the gaps between them.
  [[nodiscard]] std::int64_t elements() const;

 private:
  struct Slot {
    std::int64_t begin = 0, elements = 0;
  };

  std::vector<Slot> slots_;
  std::vector<std::size_t> slot_of_;  // by bucket
};

}  // namespace trireme::layout
