// SPDX-License-Identifier: Apache-2.0
// Which ranks share a host, and which rank of a host handles a block. Arithmetic only, the same on
// every rank.
//
// A block is the shard of a bucket that one rank owns. On the owner's host the owner handles the
// block. On every other host one rank, the owner's agent, adds up the terms of the host's ranks
// before they are sent, and receives the block for all of them. So a host sends and receives each
// block once, and its ranks share the work.
//
// 1. Hosts are numbered in the order of their first ranks; the ranks of a host ascend. Ranks may be
//    distributed to hosts in any order, and hosts may have different numbers of ranks.
// 2. With the same number of ranks on every host, the k-th rank of a host is the agent for the k-th
//    ranks of the others.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace trireme::comm {

class Hosts {
 public:
  /// `host_of`: by rank, any number that identifies its host. Requires: not empty.
  explicit Hosts(std::span<const int> host_of);
  /// Hosts of consecutive ranks, the same number on each; if `hosts` does not divide `ranks`, the
  /// last hosts have one rank less.
  static Hosts in_blocks(int ranks, int hosts);

  [[nodiscard]] int ranks() const { return static_cast<int>(places_.size()); }
  [[nodiscard]] int count() const { return static_cast<int>(members_.size()); }
  /// Whether all hosts have the same number of ranks.
  [[nodiscard]] bool equal() const;
  /// The ranks of a host, ascending.
  [[nodiscard]] const std::vector<int>& members(int host) const {
    return members_[static_cast<std::size_t>(host)];
  }
  [[nodiscard]] int host_of(int rank) const { return place(rank).host; }
  /// Position of a rank among those of its host.
  [[nodiscard]] int local_of(int rank) const { return place(rank).local; }
  /// The rank of `host` that handles the block of `owner`.
  [[nodiscard]] int agent(int host, int owner) const;

 private:
  struct Place {
    int host = 0, local = 0;
    int position = 0;  // in the list of all hosts' ranks, host by host
  };
  [[nodiscard]] const Place& place(int rank) const {
    return places_[static_cast<std::size_t>(rank)];
  }

  std::vector<std::vector<int>> members_;
  std::vector<Place> places_;  // by rank
};

}  // namespace trireme::comm
