// SPDX-License-Identifier: Apache-2.0
// The implementation of the engine: the state machine of gradients. It connects the memory
// (gradient_store.hpp, parameter_store.hpp) with the queue of collectives.
//
// The states of a bucket form two halves that overlap in time: the reduction belongs to this step,
// but compute may wait for the gather in the next one. So the gradient half is a Phase in this
// file, and the parameter store keeps the parameter half.
//
// 1. Compute waits once for each reduction: before the bucket's memory is written again, or before
//    the optimizer reads.
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
#include "reduce/transfers.hpp"

namespace trireme::reduce {

/// The gradient half of a bucket's states.
enum class Phase : std::uint8_t { filling, ready, reducing, shard_ready, updated };

inline const char* name(Phase phase) {
  constexpr const char* names[] = {"filling", "ready", "reducing", "shard_ready", "updated"};
  return names[static_cast<std::size_t>(phase)];
}

struct ReductionEvents {
  EventPtr ready, start, end, wait_begin, wait_end;
};

struct BucketRun {
  std::array<std::vector<ReductionEvents>, event_sets> reductions;  // one per round
  std::size_t num_pending = 0;    // parameters not yet reported ready
  std::size_t reduced_round = 0;  // round of the latest reduction
  Phase phase = Phase::updated;
  bool begun = false;   // uses its slot in this round, if buckets share slots
  bool awaits = false;  // compute has not waited for the latest reduction yet
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

  CollectiveQueue queue_;  // closed before the stores are destroyed
  ParameterStore parameters_;
  GradientStore gradients_;
  Leaves leaves_;
  Transfers transfers_;
  std::vector<OwnedShard> owned_;  // by bucket
  std::int64_t steps_begun_ = 0;

 private:
  void find_owned(BucketIndex bucket);
  void add_round(BucketRun& run);
  void add_locations();
  /// By bucket, the first element that is not finite in a round of a step, or -1.
  [[nodiscard]] std::span<std::int64_t> locations(std::size_t round, std::size_t event_set) const;
  void begin_round();
  void reduce(BucketIndex bucket);
  void start(BucketIndex bucket) override;
  void await_reduction(BucketIndex bucket);

  BucketRun& run_of(BucketIndex bucket) { return buckets_[at(bucket)]; }
  /// Event set of the current step.
  [[nodiscard]] std::size_t event_set() const { return event_set_of(steps_begun_); }
  /// Events of the bucket's latest reduction.
  ReductionEvents& reduction_of(BucketIndex bucket) {
    return run_of(bucket).reductions[event_set()][run_of(bucket).reduced_round];
  }

  std::vector<BucketRun> buckets_;
  std::vector<std::optional<BucketIndex>> slot_buckets_;  // by slot: its latest bucket
  std::vector<ReductionTimes> reduction_times_;           // result of the last times()
  std::vector<GatherTimes> gather_times_;
  std::vector<TransferTimes> transfer_times_;
  ops::StreamSum* leaf_squares_ = nullptr;            // sum of measure_leaves()
  std::vector<device::Buffer> locations_;             // by round: [event_set][bucket]
  std::vector<char> reported_;                        // by parameter, in this round
  std::size_t round_ = 0;                             // current round of this step
  std::array<std::size_t, event_sets> num_rounds_{};  // by event set
  std::size_t next_to_reduce_ = 0;
  std::size_t num_updated_ = 0;
  std::array<EventPtr, event_sets> step_began_;
};

}  // namespace trireme::reduce
