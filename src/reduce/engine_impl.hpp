// SPDX-License-Identifier: Apache-2.0
// The insides of the engine: the state machine of gradients, between the stores that hold the
// memory (gradient_store.hpp, parameter_store.hpp) and the queue of collectives.
//
// The two halves of a bucket's life overlap in time: its reduction belongs to this step, its gather
// may still be waited for in the next one. So the gradient half is a phase here, and the parameter
// half is the parameter store's.
//
// 1. Compute waits once for each reduction: before the bucket's memory is written again, or before
// the optimizer reads.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <vector>

#include "reduce/collective_queue.hpp"
#include "reduce/engine.hpp"
#include "reduce/gradient_store.hpp"
#include "reduce/leaves.hpp"
#include "reduce/parameter_store.hpp"

namespace trireme::reduce {

/// The gradient half of a bucket's life.
enum class Phase : std::uint8_t { filling, ready, reducing, shard_ready, updated };

inline const char* name(Phase phase) {
  constexpr const char* names[] = {"filling", "ready", "reducing", "shard_ready", "updated"};
  return names[static_cast<std::size_t>(phase)];
}

struct ReductionEvents {
  EventPtr ready, start, end, wait_begin, wait_end;
};

struct BucketRun {
  std::array<std::vector<ReductionEvents>, turns> reductions;  // one of each round
  std::size_t num_pending = 0;                                 // parameters not yet reported ready
  std::size_t reduced_round = 0;                               // of the latest reduction
  Phase phase = Phase::updated;
  bool begun = false;   // its turn in this round has come; where buckets take turns
  bool awaits = false;  // compute has yet to wait for the latest reduction
};

class Engine::Impl final : private CollectiveQueue::Source {
 public:
  Impl(const layout::Plan& plan,
       DType parameter_dtype,
       const ParallelConfig& config,
       comm::Communicator& communicator,
       device::Device& device,
       device::Stream& compute);
  ~Impl() override { queue_.close(); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void begin_step();
  void measure_leaves(ops::StreamSum& squares);
  void next_leaf();
  void next_micro_step();
  void before_write(ParameterIndex parameter);
  void mark_ready(ParameterIndex parameter);
  void finish_reduction() const;
  [[nodiscard]] std::optional<NotFinite> first_not_finite(std::int64_t step) const;
  void wait_for_shard(BucketIndex bucket);
  void mark_updated(BucketIndex bucket);
  void publish_parameters();
  StepTimes times(std::int64_t step);
  std::span<const GatherTimes> take_last_gathers();

  const layout::Plan plan_;
  const ParallelConfig config_;
  comm::Communicator& communicator_;
  device::Device& device_;
  device::Stream& compute_;

  CollectiveQueue queue_;  // closed before the stores go
  ParameterStore parameters_;
  GradientStore gradients_;
  Leaves leaves_;
  std::vector<OwnedShard> owned_;  // by bucket
  std::int64_t steps_begun_ = 0;

 private:
  void find_owned(BucketIndex bucket);
  void add_round(BucketRun& run);
  void begin_round();
  void reduce(BucketIndex bucket);
  void start(BucketIndex bucket) override;
  void await_reduction(BucketIndex bucket);

  BucketRun& run_of(BucketIndex bucket) { return buckets_[at(bucket)]; }
  /// Of the present step.
  [[nodiscard]] std::size_t turn() const { return turn_of(steps_begun_); }
  /// Of its latest one.
  ReductionEvents& reduction_of(BucketIndex bucket) {
    return run_of(bucket).reductions[turn()][run_of(bucket).reduced_round];
  }

  std::vector<BucketRun> buckets_;
  std::vector<std::optional<BucketIndex>> tenants_;  // of the slots, the latest ones
  std::vector<ReductionTimes> reduction_times_;      // what times() gave last
  std::vector<GatherTimes> gather_times_;
  ops::StreamSum* leaf_squares_ = nullptr;       // where this step's leaves are measured
  device::Buffer findings_;                      // what not_finite_ is a span of
  std::span<std::int64_t> not_finite_;           // [turn][bucket]: first element, or -1
  std::vector<char> reported_;                   // by parameter, in this round
  std::size_t round_ = 0;                        // reductions of this step that are over
  std::array<std::size_t, turns> num_rounds_{};  // of the steps
  std::size_t next_to_reduce_ = 0;
  std::size_t num_updated_ = 0;
  std::array<EventPtr, turns> step_began_;
};

}  // namespace trireme::reduce
