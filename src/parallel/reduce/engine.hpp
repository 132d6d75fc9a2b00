// SPDX-License-Identifier: Apache-2.0
// The gradient engine: it drives each bucket through its states. It owns the store of gradients
// (gradient_store.hpp) and the store of parameters (parameter_store.hpp).
//
//   filling -> ready -> reducing -> shard_ready -> updated -> gathering -> current
//
// Backward writes gradients directly into the buckets (gradients are views of them) and reports
// each one when it is complete. When the last gradient of a bucket is complete, the bucket is
// reduced; the optimizer updates the shards that it owns; the parameters are gathered; the next
// forward waits for a bucket just before it first reads from it. Every arrow that crosses streams
// is one event (those of a gather: parameter_store.hpp):
//
//   ready    compute stream, after the bucket's last gradient; the reduction waits for it
//   end      communication stream, after the reduction; compute waits before the optimizer reads
//
// With reduction: tree a step has several leaves per rank (reduce/leaves.hpp): each but the last
// ends with next_leaf(), and gradients are reported ready in the last one only.
//
// Collectives run on one stream (collective_queue.hpp): reductions in layout order, gathers in the
// order of mark_updated(), and between the gathers an optimizer's own transfers. If
// overlap_gradients or overlap_parameters is off, compute waits right after each reduction or
// gather; with both off, or with one rank, the communication stream is inline.
//
// 1. There is one reduction per bucket and step, in the last micro-step. With reduce_every:
//    micro_step there is one per bucket and micro-step. Then every micro-step reports all its
//    gradients ready and, unless it is the last, ends with next_micro_step(); the sums over the
//    ranks are added up in the order of micro-steps.
// 2. If gradients or parameters share slots of memory (layout/residency.hpp), before_write() makes
//    compute wait until the previous bucket of the slot is reduced, and before_use() gathers the
//    bucket if it is not in its slot, and starts to gather the next ones.
// 3. Padding is zero when a step starts and stays zero. After construction no call allocates and,
//    with cached shards, none computes an address.
// 4. A step in which a parameter was never reported ready is a ContractError naming it, at
//    finish_reduction(), before any rank waits.
// 5. The same calls in the same order give the same bits with every setting of the switches.
// 6. With check_gradients every bucket is searched for NaN and infinities when its last gradient is
//    reported ready, before the sum over ranks hides which rank computed them. The engine only
//    stores the finding. The optimizer reports it when the norm is not finite.
// 7. A step never makes the host wait for compute. Its times and findings are kept until the end of
//    the next step; the functions that read them wait.
// 8. measure_leaves() does not change gradients: a step has the same bits with and without it.
// 9. Compute waits once per reduction: before its memory is written again or the optimizer reads.
// 10. All members are called from one host thread, the one that enqueues on the compute stream.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/view.hpp"
#include "device/device.hpp"
#include "layout/plan.hpp"

#include "ops/optimizer/order_free_sum.hpp"

#include "comm/communicator.hpp"
#include "reduce/bucket_times.hpp"
#include "reduce/collective_queue.hpp"
#include "reduce/config.hpp"
#include "reduce/gradient_store.hpp"
#include "reduce/leaves.hpp"
#include "reduce/parameter_store.hpp"
#include "reduce/transfers.hpp"

namespace trireme::reduce {

class Engine final : private CollectiveQueue::Source {
 public:
  /// Requires: plan.ranks() == communicator.size(), both of one replica. The communicator, the
  /// device and the compute stream must outlive the engine. Collective, because it allocates from
  /// the communicator. Sharded: reduce-scatter and gather; else all-reduce, and every rank updates
  /// whole buckets. `world`: as for GradientStore.
  Engine(const layout::Plan& plan,
         DType parameter_dtype,
         const ParallelConfig& config,
         comm::Communicator& communicator,
         device::Device& device,
         device::Stream& compute,
         comm::World* world = nullptr);
  ~Engine() override { queue_.close(); }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Views of one parameter inside its bucket. Valid for the lifetime of the engine. Views of
  /// buckets that share a slot overlap.
  [[nodiscard]] View gradient(ParameterIndex parameter) const {
    return gradients_.gradient(parameter);
  }
  [[nodiscard]] View parameter(ParameterIndex parameter) const {
    return parameters_.parameter(parameter);
  }
  /// Whole buckets with padding, for checks between steps. If parameters share slots, call
  /// before_use() first.
  [[nodiscard]] View bucket_gradients(BucketIndex bucket) const {
    return gradients_.bucket(bucket);
  }
  [[nodiscard]] View bucket_parameters(BucketIndex bucket) const {
    return parameters_.bucket(bucket);
  }

  /// Call before the first micro-step. Zeroes the gradients, unless they share slots: then
  /// before_write() does. `leaves`: of this rank, with reduction: tree; default: the most that a
  /// rank has.
  void begin_step(std::optional<std::int64_t> leaves = std::nullopt);
  /// For the current step only: adds the squares of every leaf's gradient on this rank, before
  /// leaves are added to one another, to `squares` on the compute stream. Call after begin_step().
  /// Requires: reduction: tree, whose leaves do not depend on the number of ranks; `squares`
  /// outlives the step.
  void measure_leaves(ops::StreamSum& squares);
  /// Number of calls of begin_step(): the number of the step in times() and first_not_finite().
  [[nodiscard]] std::int64_t steps_begun() const { return steps_begun_; }
  /// Call after the last micro-step of each leaf but the last: adds the leaf to the waiting sums
  /// (leaves.hpp) and zeroes the gradients.
  void next_leaf();
  /// Call after every micro-step but the last, with reduce_every: micro_step (rule 1). Zeroes the
  /// gradients. Requires: every gradient was reported ready.
  void next_micro_step();
  /// Call before enqueueing the first write to this gradient in a micro-step; later calls are
  /// cheap. If gradients share slots, zeroes the bucket (rule 2). Requires: all gradients of the
  /// previous bucket of the slot were reported ready.
  void before_write(ParameterIndex parameter);
  [[nodiscard]] bool gradients_share_slots() const { return gradients_.ring().has_value(); }
  /// Call when the last write to this gradient has been enqueued on the compute stream. The last
  /// gradient of a bucket starts the bucket's reduction.
  void mark_ready(ParameterIndex parameter);
  /// Checks that the reduction of every bucket has begun. Never blocks.
  void finish_reduction() const;
  /// The first element that was not finite in the current step or the one before, in the order of
  /// reduced micro-steps and of the layout; none with check_gradients off. Requires:
  /// finish_reduction() was called in that step, and the host has waited for the work that was
  /// enqueued on compute until then.
  [[nodiscard]] std::optional<NotFinite> first_not_finite(std::int64_t step) const;
  /// The shards of this rank's optimizer in layout order. Call wait_for_shard() before reading a
  /// gradient, and update them in forward order, last bucket first, so that the first layers'
  /// parameters are gathered first.
  [[nodiscard]] std::span<const OwnedShard> owned() const { return owned_; }
  void wait_for_shard(BucketIndex bucket);
  /// Call when the optimizer has enqueued its writes to this shard; starts the gather (sharded).
  void mark_updated(BucketIndex bucket);
  /// For an optimizer that sends parts of owned(). All ranks call its begin(), and mark_updated(),
  /// in the same order.
  Transfers& transfers() { return transfers_; }
  /// Compute waits until these parameters are current. Cheap when they are. With shard: parameters
  /// this gathers them, if they are not in their slots, so all ranks must make the same calls. If
  /// parameters share slots, it ends the use of the parameters of earlier calls.
  void before_use(std::span<const ParameterIndex> parameters) {
    parameters_.before_use(parameters);
  }
  /// Whether parameters share slots (shard: parameters with reshard_after_forward).
  [[nodiscard]] bool parameters_share_slots() const { return parameters_.shares_slots(); }
  /// Enqueues the missing gathers, and compute waits for all gathers. Afterwards all parameters are
  /// current, unless they share slots.
  void wait_for_parameters() { parameters_.before_use_of_all(); }
  /// Call after parameters were written from outside (initialization, a checkpoint). Sharded:
  /// gathers them from the owners or, if they share slots, marks all slots as not gathered. Not
  /// sharded: marks the parameters as current.
  void publish_parameters();

  /// For `trireme verify` and tests (CollectiveQueue, rule 1). Call between steps, on all ranks
  /// with the same value.
  void hold_collectives(bool held) { queue_.hold(held); }

  /// Times of the current step, after its last mark_updated(), or of the step before. Blocks until
  /// compute has completed the step. Valid until the next call.
  [[nodiscard]] StepTimes times(std::int64_t step);
  /// Times of the gathers after the last step, which belong to no step because none followed. Each
  /// gather is returned once. Call after wait_for_parameters().
  [[nodiscard]] std::span<const GatherTimes> take_last_gathers();

  /// Number of leaves that this rank computes in a step.
  [[nodiscard]] std::int64_t leaves() const { return leaves_.per_step(); }
  [[nodiscard]] const layout::Plan& plan() const { return plan_; }
  [[nodiscard]] bool sharded() const { return config_.sharded(); }
  [[nodiscard]] bool cached_shards() const { return config_.cached_shards; }
  [[nodiscard]] DType parameter_dtype() const { return parameters_.dtype(); }
  /// This rank's index in its replica; owned() has the shards of this index.
  [[nodiscard]] int rank() const { return communicator_.rank(); }
  [[nodiscard]] std::vector<Carried> carried() const { return gradients_.carried(); }
  /// Zeroes the gradients, so that the caller can add errors that no carried() has to those of one
  /// rank. The first step then adds its gradients to them. Call before that step. Requires:
  /// gradients do not share slots.
  void begin_with_errors();
  /// Multiplies the errors of compression, which are in the unit of the gradients. Call between
  /// steps, when the unit changes.
  void scale_errors(float factor);
  [[nodiscard]] std::size_t gradient_bytes() const { return gradients_.bytes() + leaves_.bytes(); }
  [[nodiscard]] std::size_t parameter_bytes() const { return parameters_.bytes(); }

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
  [[nodiscard]] std::size_t event_set() const { return event_set_of(steps_begun_); }
  BucketEvents& reduction_of(BucketIndex bucket) {
    return run_of(bucket).reductions[event_set()][run_of(bucket).reduced_round];
  }

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
  bool holds_errors_ = false;  // in the gradients, until the first step
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
