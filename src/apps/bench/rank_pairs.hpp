// SPDX-License-Identifier: Apache-2.0
// Measures latency and bandwidth of MPI messages between pairs of ranks, in host memory. Unlike
// collectives over all ranks, this shows which link is slow.
//
// 1. On several hosts, the first ranks of any two hosts are a pair; on one host, its first two
//    ranks. The pairs of a round have no rank in common and run at the same time. A round includes
//    every host, except one if their number is odd.
// 2. No round begins after `seconds`, so with many hosts not all pairs are measured.
// 3. A rank that waits for a message first polls without sleeping; the others wait in a collective.
// 4. Latency is half of the median round trip of 8 bytes. Bandwidth is 4 MiB divided by the median
//    time until the receiver's answer arrives. This time includes a latency (1 % at 25 GB/s and 1
//    us), which is not subtracted, because on busy cores the difference can be negative.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "comm/control/world.hpp"

namespace trireme::bench {

struct RankPair {
  int first = 0, second = 0;  ///< ranks, first < second
  double latency_s = 0;
  double bytes_per_s = 0;
};

/// All pairs of `members` in rounds, with each member at most once per round, by the circle method
/// of round-robin tournaments.
std::vector<std::vector<std::pair<int, int>>> rounds_of(std::vector<int> members);

/// The first rank of each host, or the first two of a single host. `host_of`: by rank.
std::vector<int> members_of(const std::vector<std::string>& host_of);

/// Collective; the same on every rank. Empty with a single rank or without MPI.
std::vector<RankPair> measure_rank_pairs(comm::World& world,
                                         const std::vector<std::string>& host_of,
                                         double seconds);

}  // namespace trireme::bench
