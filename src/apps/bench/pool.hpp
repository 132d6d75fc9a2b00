// SPDX-License-Identifier: Apache-2.0
// `trireme bench pool`: what a lease costs beside allocating the same bytes anew.
//
// 1. `touched` rows also write one byte into every page, because fresh memory is paid for at its
//    first write, not when it is asked for. On a GPU they write everything, and wait for it.
// 2. Growth is measured with requests that rise by 3 % at a time from 64 KiB to the largest size:
//    how often a block grows, and what it holds beyond what is asked for.
// 3. All rows take turns, repetition by repetition, so that a disturbance of the machine hits all
//    of them; a row holds the median over the repetitions.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "device/device.hpp"

#include "bench/repetitions.hpp"

namespace trireme::bench {

struct PoolBenchRequest {
  std::vector<std::size_t> bytes{std::size_t{1} << 12, std::size_t{1} << 18, std::size_t{1} << 22,
                                 std::size_t{1} << 26};
  int repetitions = usual_repetitions;
};

struct PoolBenchRow {
  std::string operation;  ///< lease; allocate: the device's zeroed memory; malloc and free; on a
                          ///< GPU cudaMalloc and cudaFree, cudaMallocAsync and cudaFreeAsync
  bool touched = false;
  std::size_t bytes = 0;
  double seconds = 0;  ///< to take and to give back, once
};

/// What a factor of growth costs while a pool warms up.
struct PoolGrowthRow {
  double factor = 0;
  int growths = 0;
  double mean_excess = 0;  ///< bytes of the block beyond the request, as a part of the request
  double worst_excess = 0;
  double seconds = 0;  ///< for all requests, each written
};

struct PoolBench {
  std::vector<PoolBenchRow> rows;
  std::vector<PoolGrowthRow> growth;
};

PoolBench bench_pool(device::Device& device, const PoolBenchRequest& request);

std::string pool_table(const PoolBench& bench);
/// {"rows": [{"operation": …, "touched": …, "bytes": …, "seconds": …}, …],
///  "growth": [{"factor": …, "growths": …, "mean_excess": …, "worst_excess": …, "seconds": …}, …]}
std::string pool_json(const PoolBench& bench);

}  // namespace trireme::bench
