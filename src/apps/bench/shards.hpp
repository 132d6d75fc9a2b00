// SPDX-License-Identifier: Apache-2.0
// `trireme bench shards`: the time that a step spends on computing the addresses of all shards.
//
// searched  as in a step with parallel.cached_shards off: for every bucket, compute this rank's
//           shards of gradients and parameters, and the pieces of parameters in them.
// cached    read the same addresses from tables that were computed once.
//
// Both sum all addresses to prevent optimization. Look-ups of a transport (registered memory,
// peers' windows) are not included, so `searched` is a lower bound. Needs no MPI.
#pragma once

#include <cstddef>
#include <string>

#include "device/device.hpp"
#include "layout/plan.hpp"

namespace trireme::bench {

struct ShardsBench {
  std::size_t buckets = 0;
  int ranks = 1;
  double searched_s = 0, cached_s = 0;  ///< per step, medians
};

/// For the middle rank, with fp32 parameters.
ShardsBench bench_shards(const layout::Plan& plan, device::Device& device, int repetitions);

std::string shards_table(const ShardsBench& result);
/// {"rows": [{"operation": "searched" | "cached", "buckets": …, "ranks": …, "seconds": …}, …]}
std::string shards_json(const ShardsBench& result);

}  // namespace trireme::bench
