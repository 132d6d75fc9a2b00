// SPDX-License-Identifier: Apache-2.0
// The gradient engine: it drives each bucket through its states, between the store of gradients
// (gradient_store.hpp) and that of parameters (parameter_store.hpp), which it owns.
//
//   filling -> ready -> reducing -> shard_ready -> updated -> gathering -> current
//
// Backward writes gradients into the buckets (they are views, nothing is copied in) and says when
// each is finished; when a bucket's last gradient is, the bucket is reduced; the optimizer updates
// the shards it owns; the parameters are gathered; the next forward waits for a bucket just before
// it first reads from it. Every arrow that crosses streams is one event:
//
//   ready    compute stream, after the bucket's last gradient; communication waits for it before
//            reducing
//   end      communication stream, after the reduction; compute waits before the optimizer reads
//   updated  compute stream, after the optimizer wrote the shard; communication waits before
//            gathering
//   gathered communication stream, after the gather; compute waits before the first reader
//
// With reduction: tree a step has several leaves per rank (reduce/leaves.hpp): each but the last
// ends with next_leaf(), and gradients are reported ready in the last one only.
//
// Where gradient_dtype is bf16, the communication stream rounds a bucket into memory of its own
// before it reduces, and widens the result back after it.
//
// There is one communication stream, so collectives run in the order of their enqueueing, and that
// order is the same on all ranks: reductions in layout order, gathers in the order of
// mark_updated. An overlap switch that is off makes compute wait right after each collective of
// its kind; with both off, or with one rank, the communication stream is inline.
//
// 1. One reduction per bucket and step, on the last micro-step; a bucket that is ready before its
// predecessor waits for it. With reduce_every: micro_step one per micro-step, which reports all its
// gradients ready and, unless it is the last, ends with next_micro_step(); the sums over the ranks
// are added up in the order of micro-steps. What check_gradients finds is then of the last one.
// With shard: gradients or parameters buckets take turns in the memory of a few (layout/ring.hpp),
// every micro-step is reduced so, and before_write() makes compute wait for the reduction that was
// there before. With shard: parameters whole parameters take turns as well (layout/residency.hpp):
// before_use() gathers what is not there, and the bucket that comes next.
// 2. Padding is zero when a step starts and stays zero.
// 3. After construction no call allocates and, with cached shards, none computes an address.
// 4. A step in which a parameter was never reported ready is a ContractError naming it, at
// finish_reduction(), before anyone waits.
// 5. Same calls, same order, same bits with every setting of the switches.
// 6. With check_gradients every bucket is looked through when its last gradient is reported ready,
// before sums over ranks can hide who made a NaN. The engine only remembers; the optimizer, which
// sees the norm fail on all ranks at once, asks and tells.
// 7. A step never waits for compute. What it leaves for the host, times and findings, is kept until
// the end of the next one, so that it can be read when that has begun; who reads it waits.
// 8. Measuring leaves reads gradients and writes none: a step has the same bits with it.
// 9. All members are called from one host thread, the one that enqueues on the compute stream.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/view.hpp"

#include "device/device.hpp"
#include "layout/plan.hpp"

#include "comm/communicator.hpp"
#include "ops/optimizer/order_free_sum.hpp"

#include "reduce/bucket_times.hpp"
#include "reduce/config.hpp"

namespace trireme::reduce {

struct StepTimes {
  std::span<const ReductionTimes> reductions;  ///< by bucket, then in their order
  std::span<const GatherTimes> gathers;        ///< likewise
  /// Seconds in the step in which compute waited for the network. What it waited between steps (an
  /// evaluation reads parameters first) is in `gathers` only.
  double exposed_s = 0;
};

/// What the optimizer works on: this rank's piece of one bucket.
struct OwnedShard {
  BucketIndex bucket{};
  View gradient;   ///< fp32, summed over ranks once waited for; whole bucket when not sharded
  View parameter;  ///< the run's dtype; written by the optimizer
};

/// A gradient element that was NaN or infinite on this rank before its bucket was reduced.
struct NotFinite {
  BucketIndex bucket{};
  ParameterIndex parameter{};
  std::int64_t element = 0;  ///< within the parameter
};

class Engine {
 public:
  /// Requires: plan.ranks() == communicator.size(), both of one replica. The communicator, the
  /// device and the compute stream outlive the engine. Collective, because it allocates from the
  /// communicator. Sharded: reduce-scatter and gather; else all-reduce, and every rank updates
  /// whole buckets.
  Engine(const layout::Plan& plan,
         DType parameter_dtype,
         const ParallelConfig& config,
         comm::Communicator& communicator,
         device::Device& device,
         device::Stream& compute);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Views of one parameter inside its bucket. Valid for the engine's life; those of buckets that
  /// take turns overlap.
  [[nodiscard]] View gradient(ParameterIndex parameter) const;
  [[nodiscard]] View parameter(ParameterIndex parameter) const;
  /// Whole buckets, padding included: for checks between steps. Where parameters take turns,
  /// before_use() brings them there.
  [[nodiscard]] View bucket_gradients(BucketIndex bucket) const;
  [[nodiscard]] View bucket_parameters(BucketIndex bucket) const;

  /// Zeroes the gradients, but those whose memory takes turns. Call before the first micro-step.
  void begin_step();
  /// In the present step, until the next begins: adds the squares of every leaf's gradient on this
  /// rank, as it is before leaves are added to one another, to `squares` on the compute stream.
  /// Call after begin_step(). Requires: reduction: tree, whose leaves do not depend on the number
  /// of ranks; `squares` outlives the step.
  void measure_leaves(ops::StreamSum& squares);
  /// How many there were: the number by which times() and first_not_finite() know the present step.
  [[nodiscard]] std::int64_t steps_begun() const;
  /// After the last micro-step of each leaf but the last: sets the leaf's gradients aside and
  /// zeroes them.
  void next_leaf();
  /// After every micro-step but the last, with reduce_every: micro_step: adds what was reduced to
  /// what was before, and zeroes the gradients. Requires: every gradient was reported ready.
  void next_micro_step();
  /// Compute is given the first write to this gradient in a micro-step next; later calls of the
  /// micro-step are cheap. Where gradients take turns compute waits until the memory is free, and
  /// zeroes the bucket; else nothing happens. Requires: all gradients of the bucket that had the memory
  /// before were reported ready.
  void before_write(ParameterIndex parameter);
  /// Whether before_write() does anything.
  [[nodiscard]] bool takes_turns() const;
  /// The last write to this gradient has been enqueued on the compute stream. Starts the bucket's
  /// reduction when it is the last.
  void mark_ready(ParameterIndex parameter);
  /// Checks that the reduction of every bucket has begun. Never blocks.
  void finish_reduction();
  /// The first finding of the present step or the one before, in layout order; none with
  /// check_gradients off. Requires: finish_reduction() was called in that step, and the host has
  /// waited for what compute was given until then.
  [[nodiscard]] std::optional<NotFinite> first_not_finite(std::int64_t step) const;
  /// The optimizer's pieces in layout order; wait_for_shard before reading a gradient. Update them
  /// in forward order, last bucket first, so that the first layers' parameters travel first.
  [[nodiscard]] std::span<const OwnedShard> owned() const;
  void wait_for_shard(BucketIndex bucket);
  /// The optimizer has enqueued its writes to this shard; starts the gather (sharded).
  void mark_updated(BucketIndex bucket);
  /// Compute waits until these parameters are current. Cheap when they are. Where parameters take
  /// turns it gathers them, all ranks alike, and ends the use of those that were asked for before.
  void before_use(std::span<const ParameterIndex> parameters);
  /// Whether parameters do so (shard: parameters).
  [[nodiscard]] bool parameters_take_turns() const;
  /// Compute waits for all gathers under way: until all parameters are current, but where these
  /// take turns.
  void wait_for_parameters();
  /// After parameters were written from outside (initialization, a checkpoint): gathers from the
  /// owners, or declares them current, or, where they take turns, forgets what was gathered.
  void publish_parameters();

  /// For proofs. A collective that an overlap switch would let run beside compute, and that comes
  /// up while they are held, starts only when compute waits for it or for a later one. A forgotten
  /// wait then reads what was there before, every time and not only on a slow network. Call between
  /// steps, on all ranks alike.
  void hold_collectives(bool held);

  /// Times of the present step, which its last mark_updated() has finished, or of the one before.
  /// Blocks until compute is through with them. Valid until the next call.
  [[nodiscard]] StepTimes times(std::int64_t step);
  /// Times of gathers that belong to no step, since no step followed; nothing of a reduction. Each
  /// gather is told once. Call after wait_for_parameters().
  [[nodiscard]] std::span<const GatherTimes> take_last_gathers();

  /// Leaves that this rank computes in a step.
  [[nodiscard]] std::int64_t leaves() const;
  [[nodiscard]] const layout::Plan& plan() const;
  [[nodiscard]] bool sharded() const;
  [[nodiscard]] bool cached_shards() const;
  [[nodiscard]] DType parameter_dtype() const;
  /// Whose shards owned() are: the rank in its replica.
  [[nodiscard]] int rank() const;
  /// fp32 gradients, the copy that travels where gradient_dtype is not fp32, sums of micro-steps,
  /// and the partial sums of a tree.
  [[nodiscard]] std::size_t gradient_bytes() const;
  [[nodiscard]] std::size_t parameter_bytes() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme::reduce
