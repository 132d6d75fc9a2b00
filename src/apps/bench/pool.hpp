// SPDX-License-Identifier: Apache-2.0
// `trireme bench pool`: compares leasing scratch memory from the pool with allocating it.
//
// 1. `touched` rows also write one byte to every page, because the cost of new memory is incurred
//    at the first write. On a GPU they write everything and wait.
// 2. Growth is measured with requests that increase by 3 % from 64 KiB to the largest size: how
//    often a block grows, and its excess size.
// 3. Repetitions of all rows are interleaved, so that disturbances of the machine affect all of
//    them; a row is the median over the repetitions.
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
  double seconds = 0;  ///< for one allocation and release
};

/// Cost of a growth factor while a pool warms up.
struct PoolGrowthRow {
  double factor = 0;
  int growths = 0;
  double mean_excess = 0;  ///< excess size of the block relative to the request
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
