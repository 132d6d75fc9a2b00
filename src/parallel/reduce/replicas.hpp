// SPDX-License-Identifier: Apache-2.0
// Checks that all ranks hold the same parameters. If a transport writes to wrong memory, or a bit
// flips, the ranks diverge, and the loss shows it late or never.
//
// A check hashes every bucket in place (ops/optimizer/reductions.hpp) and compares the hashes over
// the ranks by one all-reduce (maximum). Parameters are hashed one by one only if hashes differ, to
// name the bucket, the parameter and the ranks. If parameters share slots of memory (shard:
// parameters), the check gathers one bucket after another.
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
  /// All of these must outlive the object.
  Replicas(Engine& engine, comm::World& world, device::Device& device, device::Stream& compute);

  /// Throws CommError on all ranks when the parameters of any two ranks differ after `step`.
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
