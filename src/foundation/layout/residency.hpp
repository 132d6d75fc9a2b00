// SPDX-License-Identifier: Apache-2.0
// Which parameters are whole in memory at a time (parallel.shard: parameters), and in which slots
// (Ring): docs/design/parallel.md, "Sharded parameters". Forward reads the layers
// (Parameter::group) from the last bucket to the first, and backward from the first to the last.
//
// Residency decides what is gathered when. The store that moves the bytes
// (reduce/parameter_store.hpp) and the budget that counts them both use it.
//
// 1. The gathers depend only on the calls, so they are the same on every rank.
// 2. use() ends the use of all parameters of earlier calls, except those of dedicated buckets.
// 3. A bucket of the layer in use is never evicted; an attempt is a ContractError.
// 4. After construction no call allocates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/index.hpp"
#include "layout/plan.hpp"

namespace trireme::layout {

/// The memory of buckets that share a few slots, one after another. Constant after construction.
///
/// Gradients: while one bucket is written, the next one may be written as well (the backward of a
/// norm writes the bias of the layer before it), and the previous one is being reduced; hence three
/// shared slots. A dedicated bucket (a tied embedding: the head writes it first, the embedding
/// last) has its own slot. Parameters: the number of slots depends on the layers (Residency).
///
/// 1. A slot has the size of its largest bucket, so the view of a bucket never changes, even while
///    another bucket uses the slot.
/// 2. Slots begin at multiples of 64 elements and, as buckets do, at multiples of the granule if
///    that is larger: shards are aligned as they are in the flat space.
/// 3. Consecutive slot-sharing buckets have different slots, up to the number of shared slots.
class Ring {
 public:
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

struct GatherOptions {
  std::int64_t prefetch = 1;          ///< buckets that are gathered ahead
  bool reshard_after_forward = true;  ///< other buckets reuse the memory after the layer
};

class Residency {
 public:
  /// One gather into the bucket's slot, which `evicted` occupied before.
  struct Gather {
    BucketIndex bucket{};
    std::optional<BucketIndex> evicted;
  };

  /// The plan must outlive the object. Requires: buckets in reverse order; options.prefetch >= 0.
  Residency(const Plan& plan, const GatherOptions& options);

  [[nodiscard]] const Ring& ring() const { return ring_; }
  /// Whether buckets share slots. If not, a gathered bucket stays resident until its update.
  [[nodiscard]] bool shares_slots() const { return shares_slots_; }

  /// Call before these parameters are read. Returns the gathers to enqueue, in order: the layer's
  /// buckets, then the next layers'. All results are valid until the next call.
  std::span<const Gather> use(std::span<const ParameterIndex> parameters);
  /// Call after the owners have updated the bucket: the content of its slot is old. Returns the
  /// gather to enqueue at once if forward reads the bucket first.
  std::span<const Gather> update(BucketIndex bucket);
  /// Call before forward. Returns the missing gathers of the buckets that forward reads first.
  std::span<const Gather> begin_forward();
  /// Call before all parameters are read. Returns the missing gathers. Requires: !shares_slots().
  std::span<const Gather> use_all();

 private:
  static constexpr std::size_t dedicated = static_cast<std::size_t>(-1);

  [[nodiscard]] bool resident(BucketIndex bucket) const { return resident_[at(bucket)] != 0; }
  /// Whether forward starts with it: dedicated, read by the first layer, or prefetched with that.
  [[nodiscard]] bool read_first(BucketIndex bucket) const;
  void gather(BucketIndex bucket);
  /// `before`: low_ of the previous layer.
  void look_ahead(std::size_t before);

  const Plan& plan_;
  const std::size_t prefetch_;
  const bool shares_slots_;
  std::vector<std::size_t> index_;   // by bucket: its index in shared_
  std::vector<BucketIndex> shared_;  // buckets that share slots
  std::vector<char> in_backward_;    // as shared_: whether a layer reads the bucket in backward
  std::size_t num_first_ = 0;        // buckets at the end of shared_ that the first layer reads
  Ring ring_;
  std::vector<std::optional<BucketIndex>> occupants_;  // of slots
  std::vector<char> resident_;                         // by bucket: whole and current
  std::size_t low_ = 0, high_ = 0;                     // [low_, high_) of shared_ are in use
  bool forward_ = true;                                // direction in which layers are read
  std::vector<Gather> gathers_;
};

/// The parameters that forward or backward of one layer reads.
struct Reading {
  std::vector<ParameterIndex> parameters;  ///< of the layer
  bool backward = false;
};

/// The readings of a micro-step in their order: forward of every layer, and backward of all layers
/// except the last, which forward has just read, and the first, an embedding, whose parameters
/// backward does not read.
std::vector<Reading> readings(const Plan& plan);

/// Elements of the buckets that a step of `micro_steps` gathers, padding included.
std::int64_t gathered_elements(const Plan& plan,
                               const GatherOptions& options,
                               std::int64_t micro_steps);

}  // namespace trireme::layout
