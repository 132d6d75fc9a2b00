// SPDX-License-Identifier: Apache-2.0
// Local steps: replicas (parallel.replicate) make several updates independently and are then
// averaged. Formulas and sources: docs/design/training.md, "Local steps".
//
// In each update a replica adds up the gradients of an equal part of its sequences over its own
// ranks, clips them and updates its weights. With outer.dtype the terms of d and d itself are
// rounded to bf16, or encoded in blocks with error feedback (reduce/block_compression.hpp),
// whatever type gradients are sent in.
//
// Averaging the moments as well (Local Adam, arXiv 2505.22549) would send three times as much, and
// lowers the loss less than spending these bytes on more frequent averages
// (docs/results/local_steps.csv). If a run resumes with another number of replicas, they receive
// the moments of the old replicas cyclically.
//
// 1. Sums over replicas are in the order of replicas, so the bits do not depend on buckets. Replicas
//    with different numbers of ranks have different shards: what two ranks of each have in common
//    is a part (layout::Plan::shared_parts()).
// 2. `b` and `u` are the last slots of the optimizer's state (state_slots() in rule.hpp). What error
//    feedback carries to the next step is carried().
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "device/device.hpp"

#include "comm/communicator.hpp"
#include "reduce/compression.hpp"
#include "reduce/engine.hpp"

#include "optim/config.hpp"
#include "optim/rule.hpp"

namespace trireme::optim {

class LocalSteps {
 public:
  /// The communicator and the world of all ranks must outlive the object. Collective.
  LocalSteps(const OuterConfig& config,
             const reduce::Engine& engine,
             comm::Communicator& communicator,
             comm::World& world,
             device::Device& device);

  /// `b` of the piece = its master. `slots`: number of slots, those of local steps included.
  static void begin(const Update& piece, std::size_t slots, device::Stream& stream);
  /// Averages the weights of the pieces of a bucket over the replicas, in the memory of their
  /// gradients. `weight`: `w` of this replica. Collective.
  void average(BucketIndex bucket,
               std::span<const Update> pieces,
               std::size_t slots,
               float weight,
               device::Stream& stream);
  [[nodiscard]] std::vector<reduce::Carried> carried() const;

 private:
  const OuterConfig config_;
  const reduce::Engine& engine_;
  std::unique_ptr<reduce::Compression> exchange_;  // null: there is one replica
};

/// What averaging needs on a rank; 0 with one replica.
reduce::CompressionBytes outer_memory(const OuterConfig& config, const layout::Plan& plan);
/// Bytes that a rank sends to average the weights over the replicas, per step.
std::int64_t averaged_bytes(const OuterConfig& config, const layout::Plan& plan);

}  // namespace trireme::optim
