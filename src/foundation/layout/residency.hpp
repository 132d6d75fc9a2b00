// SPDX-License-Identifier: Apache-2.0
// Which parameters are whole in memory at a time (parallel.shard: parameters). A rank keeps its
// shards; a bucket is gathered before a layer reads it, into a slot (ring.hpp) that others take
// after it.
//
// Forward reads the layers, Parameter::group, from the last bucket to the first, and backward from
// the first to the last. A layer may lie in several buckets, which have to be there together. So
// there are as many slots in turns as the buckets of the layer that has most, and one for each
// bucket that is gathered ahead. Buckets have fixed slots in the order of the layout: of any so
// many buckets in a row no two have the same one, whichever way the layers are walked. What the end
// of forward leaves is what backward begins with, and is not gathered again.
//
// Without resharding after forward every bucket has a slot for itself and is gathered once per
// update, just before a layer reads it first; its memory serves no other bucket.
//
// A bucket that is for itself (a tied embedding, which both ends of the model read) has a slot for
// itself, and is gathered once per update.
//
// This is the bookkeeping: what lies where, what has to be gathered, in which order. It serves
// the store that moves the bytes (reduce/parameter_store.hpp) and the budget that counts them.
//
// 1. What is gathered when depends on the calls alone, so it is the same on every rank.
// 2. use() ends the use of everything that was asked for before, but what is for itself.
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
#include "layout/ring.hpp"

namespace trireme::layout {

struct GatherOptions {
  std::int64_t prefetch = 1;          ///< buckets that are gathered ahead
  bool reshard_after_forward = true;  ///< a bucket's memory is used again after its layer
};

class Residency {
 public:
  /// One gather: into the bucket's slot, which `evicted` had before.
  struct Gather {
    BucketIndex bucket{};
    std::optional<BucketIndex> evicted;
  };

  /// The plan outlives the object. Requires: buckets in reverse order; options.prefetch >= 0.
  Residency(const Plan& plan, const GatherOptions& options);

  [[nodiscard]] const Ring& ring() const { return ring_; }
  /// Whether buckets share slots; else whatever was gathered stays whole until its update.
  [[nodiscard]] bool takes_turns() const { return takes_turns_; }

  /// These parameters are read next, and no others that take turns. What has to be gathered for it,
  /// in this order: the layer's buckets, then those that come next. Valid until the next call.
  std::span<const Gather> use(std::span<const ParameterIndex> parameters);
  /// Its owners have written the bucket: what lies in its slot is old. What has to be gathered
  /// again at once, because forward begins with it. Valid until the next call.
  std::span<const Gather> update(BucketIndex bucket);
  /// Forward begins soon: what is missing of what it reads first. Valid until the next call.
  std::span<const Gather> begin_forward();
  /// All buckets are read next: those that are missing. Valid until the next call. Requires:
  /// !takes_turns().
  std::span<const Gather> use_all();

 private:
  static constexpr std::size_t for_itself = static_cast<std::size_t>(-1);

  [[nodiscard]] bool resident(BucketIndex bucket) const { return resident_[at(bucket)] != 0; }
  /// Whether forward begins with it.
  [[nodiscard]] bool opens(BucketIndex bucket) const;
  void gather(BucketIndex bucket);
  /// `before`: where the layer before this one began.
  void look_ahead(std::size_t before);

  const Plan& plan_;
  const std::size_t prefetch_;
  const bool takes_turns_;
  std::vector<std::size_t> place_;  // by bucket: its number among those that take turns
  std::vector<BucketIndex> turns_;  // by that number
  std::vector<char> in_backward_;   // by that number: a layer reads it again in backward
  std::size_t num_first_ = 0;       // of turns_, at its end: what the first layer reads
  Ring ring_;
  std::vector<std::optional<BucketIndex>> occupants_;  // of slots
  std::vector<char> resident_;                         // by bucket: whole, and not old
  std::size_t low_ = 0, high_ = 0;                     // [low_, high_) of turns_ are in use
  bool forward_ = true;                                // the way that the layers are walked
  std::vector<Gather> gathers_;
};

/// What forward or backward of one layer reads.
struct Reading {
  std::vector<ParameterIndex> parameters;  ///< of the layer
  bool backward = false;
};

/// The readings of a micro-step, one after another: forward of every layer, and backward of all but
/// the last, which forward has just read, and the first, an embedding, which backward only writes.
std::vector<Reading> readings(const Plan& plan);

/// Elements of the buckets that a step of so many micro-steps gathers, padding included.
std::int64_t gathered_elements(const Plan& plan,
                               const GatherOptions& options,
                               std::int64_t micro_steps);

}  // namespace trireme::layout
