// SPDX-License-Identifier: Apache-2.0
// Messages between two ranks at a time: latency of small ones and bandwidth of large ones, over
// MPI, from memory of the host. Collectives over all ranks do not tell which link is slow; these do.
//
// 1. On several hosts the first ranks of every two hosts are a pair; on one host its first two
//    ranks. Pairs of a round have no rank in common and run at the same time, as in a collective; a
//    round has every host in it, but for one where their number is odd.
// 2. No round begins after `seconds`, so of many hosts not all pairs are measured; with each
//    further round every host has one more.
// 3. A rank that waits for a message polls without sleeping, for a time; the others wait in a
//    collective.
// 4. latency is half of a median round trip of 8 bytes. Bandwidth is 4 MiB over the median time
//    until their receiver's answer is there. A latency is part of that time (1 % of it at 25 GB/s
//    and 1 us) and not subtracted: where busy cores delayed small messages by more than large ones,
//    the difference was negative.
#pragma once

#include <cstdint>
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

/// Every two of `members`, in rounds: none is twice in a round. The circle method of round-robin
/// tournaments.
std::vector<std::vector<std::pair<int, int>>> rounds_of(std::vector<int> members);

/// One rank of each host, or the first two of one host. `host_of`: the host of each rank.
std::vector<int> members_of(const std::vector<std::string>& host_of);

/// Collective; the same on every rank. None where a rank is alone or without MPI.
std::vector<RankPair> measure_rank_pairs(comm::World& world,
                                         const std::vector<std::string>& host_of,
                                         double seconds);

}  // namespace trireme::bench
