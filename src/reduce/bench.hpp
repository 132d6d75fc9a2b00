// SPDX-License-Identifier: Apache-2.0
// `trireme bench shards`: what a step pays to find where every shard lies.
//
// searched  what a step does with parallel.cached_shards off: for every bucket this rank's shards
//           of gradients and parameters, and the pieces of parameters in them.
// cached    reads the same addresses from the tables that were made once.
//
// Both add up every address, so both touch all of it. A transport's own look-ups (registered
// memory, peers' windows) are not in it, so `searched` is the least that it costs. Needs neither
// MPI nor the ranks that it describes.
#pragma once

#include <cstddef>
#include <string>

#include "device/device.hpp"
#include "layout/plan.hpp"

namespace trireme::reduce {

struct ShardsBench {
  std::size_t buckets = 0;
  int ranks = 1;
  double searched_s = 0, cached_s = 0;  ///< per step, medians
};

/// For the rank in the middle. fp32 parameters.
ShardsBench bench_shards(const layout::Plan& plan, device::Device& device, int repetitions);

std::string shards_table(const ShardsBench& result);
/// {"rows": [{"operation": "searched" | "cached", "buckets": …, "ranks": …, "seconds": …}, …]}
std::string shards_json(const ShardsBench& result);

}  // namespace trireme::reduce
