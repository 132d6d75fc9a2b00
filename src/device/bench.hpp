// SPDX-License-Identifier: Apache-2.0
// `trireme bench pool`: what a lease costs beside allocating the same bytes anew.
//
// 1. `touched` rows also write one byte into every page, because fresh memory is paid for at its
// first write, not when it is asked for. On a GPU they write everything, and wait for it.
// 2. All rows take turns, repetition by repetition, so that a disturbance of the machine hits all
// of them; a row holds the median over the repetitions.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "device/device.hpp"

namespace trireme::device {

struct PoolBenchRequest {
  std::vector<std::size_t> bytes{std::size_t{1} << 12, std::size_t{1} << 18, std::size_t{1} << 22,
                                 std::size_t{1} << 26};
  int repetitions = 21;
};

struct PoolBenchRow {
  std::string operation;  ///< lease; allocate: the device's zeroed memory; malloc and free; on a
                          ///< GPU cudaMalloc and cudaFree, cudaMallocAsync and cudaFreeAsync
  bool touched = false;
  std::size_t bytes = 0;
  double seconds = 0;  ///< to take and to give back, once
};

std::vector<PoolBenchRow> bench_pool(Device& device, const PoolBenchRequest& request);

std::string pool_table(const std::vector<PoolBenchRow>& rows);
/// {"rows": [{"operation": …, "touched": …, "bytes": …, "seconds": …}, …]}
std::string pool_json(const std::vector<PoolBenchRow>& rows);

}  // namespace trireme::device
