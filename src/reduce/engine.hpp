// SPDX-License-Identifier: Apache-2.0
// The gradient engine: it owns the buckets of gradients and parameters and drives each bucket
// through its states.
//
//   filling -> ready -> reducing -> shard_ready -> updated -> gathering -> current
//
// Backward writes gradients into the buckets (they are views, nothing is copied in) and says when
// each is finished; when a bucket's last gradient is, the bucket is reduced; the optimizer updates
// the shards it owns; the parameters are gathered; the next forward waits for a bucket just before
// it first reads from it. Every arrow that crosses streams is one event:
//
//   ready        compute stream, after the bucket's last gradient     -> communication waits before
//   reducing shard_ready  communication stream, after the reduction            -> compute waits
//   before the optimizer updated      compute stream, after the optimizer wrote the shard  ->
//   communication waits before gathering current      communication stream, after the gather ->
//   compute waits before the first reader
//
// 1. One reduction per bucket and step, on the last micro-step; buckets are reduced in layout order
// on all ranks.
// 2. Padding is zero when a step starts and stays zero.
// 3. After construction no call allocates and, with cached shards, none computes an address.
// 4. A step in which a parameter was never reported ready is a ContractError naming it, at
// finish_reduction(), before anyone waits.
// 5. With overlap off the communication stream is inline: same calls, same order, same bits.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/view.hpp"

#include "device/device.hpp"
#include "layout/plan.hpp"

#include "comm/communicator.hpp"

#include "reduce/config.hpp"

namespace trireme::reduce {

/// When things happened to one bucket in one step, in seconds of the host's steady clock.
struct BucketTimes {
  double ready = 0, start = 0, end = 0;  ///< gradient path
  double waited = 0;  ///< seconds that compute stood still for this bucket's reduction
  double gather_start = 0, gather_end = 0, gather_waited = 0;
};

/// What the optimizer works on: this rank's piece of one bucket.
struct OwnedShard {
  BucketIndex bucket{};
  View gradient;   ///< fp32, summed over ranks once waited for
  View parameter;  ///< the run's dtype; written by the optimizer
};

class Engine {
 public:
  /// `sharded`: reduce-scatter and gather; else all-reduce, and every rank updates whole buckets.
  Engine(const layout::Plan& plan,
         DType parameter_dtype,
         bool sharded,
         const ParallelConfig& config,
         comm::Communicator& communicator,
         device::Device& device,
         device::Stream& compute);
  ~Engine();

  /// Views of one parameter inside its bucket. Valid for the engine's life.
  [[nodiscard]] View gradient(ParameterIndex parameter) const;
  [[nodiscard]] View parameter(ParameterIndex parameter) const;

  /// Zeroes the gradients. Call before the first micro-step.
  void begin_step();
  /// The last write to this gradient has been enqueued on the compute stream. Starts the bucket's
  /// reduction when it is the last.
  void mark_ready(ParameterIndex parameter);
  /// Every bucket must be on its way; makes the compute stream wait for bucket after bucket through
  /// wait_for_shard.
  void finish_reduction();
  /// The optimizer's pieces in layout order; wait_for_shard before reading a gradient.
  [[nodiscard]] std::span<const OwnedShard> owned() const;
  void wait_for_shard(BucketIndex bucket);
  /// The optimizer has enqueued its writes to this shard; starts the gather (sharded).
  void mark_updated(BucketIndex bucket);
  /// Compute waits until these parameters are current. Cheap when they are.
  void before_use(std::span<const ParameterIndex> parameters);
  /// Compute waits until all parameters are current.
  void wait_for_parameters();
  /// After parameters were written from outside (initialization, a checkpoint): gathers from the
  /// owners, or declares them current.
  void publish_parameters();

  /// Times of the last finished step, by bucket.
  [[nodiscard]] std::span<const BucketTimes> times() const;
  /// Seconds in the last step in which compute waited for the network.
  [[nodiscard]] double exposed_seconds() const;

  [[nodiscard]] const layout::Plan& plan() const;
  [[nodiscard]] std::size_t gradient_bytes() const;
  [[nodiscard]] std::size_t parameter_bytes() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme::reduce
