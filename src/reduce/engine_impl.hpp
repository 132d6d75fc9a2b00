// SPDX-License-Identifier: Apache-2.0
// The insides of the engine: one BucketRun per bucket and the members that move it along.
//
// The two halves of a bucket's life overlap in time: its reduction belongs to this step, its gather
// may still be waited for in the next one. So the gradient half is a phase, the parameter half a
// flag, and each half has its own events.
//
// 1. Events are made once and recorded again every few steps: the sets of events take turns. The
// times of a step are read when the next one may be on its way, and those of a gather belong to the
// step after it, so a third step must not touch them yet.
// 2. Whoever holds collectives back (verify) keeps their order: a wait starts all that were
// enqueued before the one it is for.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "reduce/engine.hpp"
#include "reduce/leaves.hpp"

namespace trireme::reduce {

/// The gradient half of a bucket's life; the parameter half is Bucket::gathering.
enum class Phase : std::uint8_t { filling, ready, reducing, shard_ready, updated };

inline const char* name(Phase phase) {
  constexpr const char* names[] = {"filling", "ready", "reducing", "shard_ready", "updated"};
  return names[static_cast<std::size_t>(phase)];
}

using EventPtr = std::unique_ptr<device::Event>;

struct ReductionEvents {
  EventPtr ready, start, end, wait_begin, wait_end;
};

struct GatherEvents {
  EventPtr updated, start, end, wait_begin, wait_end;
  bool counts = false;  // recorded by a step, and not yet in its times
};

inline constexpr std::size_t turns = 3;

struct BucketRun {
  View gradient, parameter;  // whole, padding included
  View wire;                 // what is reduced: the gradient itself, or its rounded copy
  std::unique_ptr<comm::Shards> gradient_shards, parameter_shards;
  std::array<std::vector<ReductionEvents>, turns> reductions;  // one of each round
  std::array<GatherEvents, turns> gathers;
  std::size_t num_pending = 0;  // parameters not yet reported ready
  Phase phase = Phase::updated;
  std::size_t last_gather = 0;  // which of `gathers` the latest one used
  bool gathering = false;
};

class Engine::Impl {
 public:
  Impl(const layout::Plan& plan,
       DType parameter_dtype,
       bool sharded,
       const ParallelConfig& config,
       comm::Communicator& communicator,
       device::Device& device,
       device::Stream& compute);

  void begin_step();
  void measure_leaves(ops::StreamSum& squares);
  void next_leaf();
  void next_micro_step();
  void mark_ready(ParameterIndex parameter);
  void finish_reduction() const;
  [[nodiscard]] std::optional<NotFinite> first_not_finite(std::int64_t step) const;
  void wait_for_shard(BucketIndex bucket);
  void mark_updated(BucketIndex bucket);
  void before_use(std::span<const ParameterIndex> parameters);
  void wait_for_parameters();
  void publish_parameters();
  void hold_collectives(bool held);
  StepTimes times(std::int64_t step);
  std::span<const BucketTimes> take_last_gathers();

  [[nodiscard]] View view_in(const device::Buffer& arena,
                             DType dtype,
                             std::int64_t begin,
                             std::int64_t elements) const {
    return arena.view(dtype, static_cast<std::size_t>(begin) * size_bytes(dtype), elements);
  }

  const layout::Plan plan_;
  const DType parameter_dtype_;
  const bool sharded_;
  const ParallelConfig config_;
  comm::Communicator& communicator_;
  device::Device& device_;
  device::Stream& compute_;

  const bool rounds_;  // gradients travel as a copy

  device::Buffer gradients_, wire_, parameters_;
  device::Buffer sums_;           // of the micro-steps before; as owned_, one after another
  std::optional<Leaves> leaves_;  // always there
  ops::StreamSum* leaf_squares_ = nullptr;              // where this step's leaves are measured
  std::vector<View> gradient_views_, parameter_views_;  // by parameter
  device::Buffer findings_;                             // what not_finite_ is a span of
  std::span<std::int64_t> not_finite_;                  // [turn][bucket]: first element, or -1
  std::vector<OwnedShard> owned_;                       // by bucket
  std::vector<View> sums_views_;                        // by bucket, where there are any
  std::vector<BucketTimes> times_;                      // by bucket
  std::int64_t steps_begun_ = 0;

 private:
  void make_bucket(BucketIndex bucket);
  void find_owned(BucketIndex bucket);
  void add_round(BucketRun& run);
  void take_sums();
  void await_shard(BucketIndex bucket);
  void reduce(BucketIndex bucket);
  void start_reduction(BucketIndex bucket);
  void gather(BucketIndex bucket);
  void start_gather(BucketIndex bucket);
  void start_held(BucketIndex last, bool gathers);
  void wait_for_gather(BucketIndex bucket);

  BucketRun& run_of(BucketIndex bucket) { return buckets_[at(bucket)]; }
  static std::size_t turn_of(std::int64_t step) { return static_cast<std::size_t>(step) % turns; }
  /// Of the present step.
  [[nodiscard]] std::size_t turn() const { return turn_of(steps_begun_); }
  ReductionEvents& reduction_of(BucketIndex bucket) {
    return run_of(bucket).reductions[turn()][round_];
  }

  std::vector<BucketRun> buckets_;
  std::vector<char> reported_;                   // by parameter, in this step
  std::size_t round_ = 0;                        // reductions of this step that are over
  std::array<std::size_t, turns> num_rounds_{};  // of the steps
  std::size_t next_to_reduce_ = 0;
  std::size_t num_updated_ = 0;
  std::size_t num_gathering_ = 0;
  std::array<EventPtr, turns> step_began_;
  bool holds_ = false;
  struct Held {
    BucketIndex bucket;
    bool gathers;
    bool operator==(const Held&) const = default;
  };
  std::vector<Held> held_;  // in order, from next_held_ on
  std::size_t next_held_ = 0;

  // Last: its worker ends before the memory that it works on goes.
  std::unique_ptr<device::Stream> communication_;
};

}  // namespace trireme::reduce
