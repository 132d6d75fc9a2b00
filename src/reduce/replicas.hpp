// SPDX-License-Identifier: Apache-2.0
// Whether all ranks hold the same parameters. Every rank is to see the same bits after each gather;
// a transport that mixes up memory, or a bit that flips, makes replicas drift apart, and the loss
// shows it late or never.
//
// A check hashes every bucket where it lies (ops/optimizer/hash.hpp) and compares the hashes over
// the ranks in one logarithmic maximum. Only where they differ are parameters hashed one by one, to
// name the bucket, the parameter and the ranks. Where parameters take turns in memory (shard:
// parameters), bucket after bucket is gathered for it.
//
// Threads: the host thread that owns the compute stream. check() is collective and waits for all
// gathers.
#pragma once

#include <cstdint>

#include "device/device.hpp"

#include "comm/control/world.hpp"

#include "reduce/engine.hpp"

namespace trireme::reduce {

class Replicas {
 public:
  /// All of these outlive the object.
  Replicas(Engine& engine, comm::World& world, device::Device& device, device::Stream& compute);

  /// Throws CommError on all ranks when any holds other parameters than the others after `step`.
  void check(std::int64_t step);

 private:
  [[noreturn]] void name_differences(BucketIndex first, std::int64_t buckets, std::int64_t step);
  std::uint64_t hash_of(ConstView values);

  Engine& engine_;
  comm::World& world_;
  device::Stream& compute_;
  device::Buffer hashes_;  // by bucket, shared with the host
};

}  // namespace trireme::reduce
