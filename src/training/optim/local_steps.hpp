// SPDX-License-Identifier: Apache-2.0
// Local steps: replicas (parallel.replicate) that make several updates without each other, and are
// then averaged.
//
// A step of the run has L updates. In each, a replica adds up the gradients of an equal part of its
// sequences over its own ranks, clips them and updates its weights x from those at the step's
// begin, b. Then, over the G replicas, with the outer rate r and momentum m:
//
//   d = sum of (b - x) / G;   u = m u + d;   x = b - r (d + m u)
//
// and every moment of the inner optimizer is replaced by its mean. r = 1 and m = 0 is LocalSGD
// (Stich, arXiv 1805.09767), r = 0.7 and m = 0.9 DiLoCo (Douillard et al., arXiv 2311.08105). There
// replicas keep their own moments. Here they are averaged, as in Local Adam (arXiv 2505.22549), so
// that after each step all replicas have the same state: a checkpoint holds it once, and a run may
// continue with another number of replicas. Between replicas a step sends this rank's shard once
// for the weights and once per moment, in fp32, instead of once per update.
//
// 1. On CPUs sums over replicas are in the order of replicas, so the bits do not depend on buckets.
// 2. `b` and `u` are the last slots of the optimizer's state (state_slots() in rule.hpp).
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "device/device.hpp"

#include "comm/communicator.hpp"
#include "reduce/engine.hpp"

#include "optim/config.hpp"
#include "optim/rule.hpp"

namespace trireme::optim {

class LocalSteps {
 public:
  /// The communicator must outlive the object. Collective.
  LocalSteps(const OuterConfig& config,
             const reduce::Engine& engine,
             comm::Communicator& communicator);

  /// `b` of the piece = its master. `slots`: number of slots, those of local steps included.
  static void begin(const Update& piece, std::size_t slots, device::Stream& stream);
  /// Averages the pieces of a bucket over the replicas, in the memory of their gradients.
  /// Collective.
  void average(BucketIndex bucket,
               std::span<const Update> pieces,
               std::size_t slots,
               device::Stream& stream);

 private:
  void sum_over_replicas(BucketIndex bucket, device::Stream& stream);

  const OuterConfig config_;
  comm::Communicator* across_ = nullptr;                  // null: there is one replica
  std::vector<std::unique_ptr<comm::Shards>> gradients_;  // by bucket, for sums across replicas
};

}  // namespace trireme::optim
