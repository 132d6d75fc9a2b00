// SPDX-License-Identifier: Apache-2.0
// `trireme bench reduce`: the speed of collectives over buckets and of MPI's own in the same run.
//
// The columns are those of nccl-tests (doc/PERFORMANCE.md there): size is that of the whole bucket,
// algbw = bytes / seconds, and busbw = algbw x (n-1)/n for reduce-scatter and all-gather, x
// 2(n-1)/n for all-reduce. The factor is the least share of the bytes that a rank must send, so
// busbw can be compared between rank counts. `wrong` counts the elements, over all ranks, that were
// wrong in a check with known numbers before the timing (collectives_check.hpp). If there are any,
// the command's exit code is 3.
//
// 1. A repetition starts after a barrier and takes as long as its slowest rank; a row holds the
//    median over the repetitions.
// 2. The rows of one size are interleaved, repetition by repetition, so that a disturbance of the
//    machine affects all of them and ratios stay valid.
// 3. On a GPU, buckets are in GPU memory, nccl is the only transport, and MPI is not a baseline.
// 4. Baselines are rows too; their operation is the MPI function's name, or `memcpy`: every rank
//    copies `bytes` once, from and to its own memory (busbw = algbw).
#pragma once

#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "base/json.hpp"
#include "device/device.hpp"

#include "comm/communicator.hpp"

namespace trireme::bench {

struct CollectivesBenchRequest {
  std::vector<std::int64_t> bytes{8, 64, 512, 1 << 12, 1 << 15, 1 << 18, 1 << 21, 1 << 24, 1 << 26};
  std::vector<comm::Transport> transports{comm::Transport::automatic};
  std::vector<DType> dtypes{DType::f32};  ///< f32, bf16
  comm::Reduction reduction = comm::Reduction::sum;
  int repetitions = 21;
  /// Limit per size and dtype: after it, no warm-up begins, and no repetition after the second.
  double seconds = 1e9;
  /// A repetition runs consecutive collectives until they hold this many bytes, at most
  /// `most_in_a_row` of them; `seconds` is the time of one. A step sends its buckets in the same
  /// way, and buffers in the network, which absorb the first of them, matter less.
  std::int64_t row_bytes = 0, most_in_a_row = 1024;
  bool baselines = true;
  comm::Options options{};  ///< of the transports
};

struct CollectivesBenchRow {
  std::string operation;  ///< reduce_scatter, all_gather, all_reduce, MPI_Allreduce, …, memcpy
  std::string transport;  ///< as in the deck; `MPI` or `none` for baselines
  DType dtype = DType::f32;
  int ranks = 1;
  std::int64_t bytes = 0;  ///< of the whole bucket, rounded up to whole elements of every rank
  std::int64_t count = 0;  ///< elements of the whole bucket
  std::string redop;       ///< as in the deck; `none` where nothing is added
  std::int64_t wrong = 0;
  double seconds = 0;  ///< median
  double algbw = 0;    ///< bytes per second
  double busbw = 0;    ///< bytes per second
};

/// Collective; the same rows on every rank. MPI's rows need an MPI world. Throws UserError when a
/// transport does not fit the world.
std::vector<CollectivesBenchRow> bench_collectives(comm::World& world,
                                                   device::Device& device,
                                                   const CollectivesBenchRequest& request);

/// The table of nccl-tests for every operation and transport, by size.
std::string collectives_table(const std::vector<CollectivesBenchRow>& rows);
/// {"rows": [{"operation": …, "seconds": …, …}, …]}; SI units.
Json collectives_json(const std::vector<CollectivesBenchRow>& rows);

/// Factor from algbw to busbw. Source: nccl-tests, doc/PERFORMANCE.md.
double bus_factor(const std::string& operation, int ranks);

}  // namespace trireme::bench
