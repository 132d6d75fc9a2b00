// SPDX-License-Identifier: Apache-2.0
// The replicas of the state: consecutive ranks of the run, at least one in each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace trireme::layout {

class ReplicaRanks {
 public:
  /// One replica with one rank.
  ReplicaRanks() = default;
  /// `sizes`: the number of ranks of each replica.
  explicit ReplicaRanks(const std::vector<int>& sizes);
  /// `replicas` of the same size; if they do not divide `ranks`, the last ones have one rank less.
  /// Requires: 1 <= replicas <= ranks.
  ReplicaRanks(int ranks, int replicas);

  /// Number of replicas.
  [[nodiscard]] int count() const { return static_cast<int>(begins_.size()) - 1; }
  [[nodiscard]] int ranks() const { return begins_.back(); }
  [[nodiscard]] int first(int replica) const { return begins_[static_cast<std::size_t>(replica)]; }
  [[nodiscard]] int size(int replica) const { return first(replica + 1) - first(replica); }
  [[nodiscard]] int smallest() const;
  [[nodiscard]] bool equal() const { return smallest() * count() == ranks(); }
  /// The replica of a rank of the run.
  [[nodiscard]] int of(int rank) const;

  /// The smallest number of equal parts of a bucket such that every shard of every replica consists
  /// of a multiple of count() of them.
  [[nodiscard]] std::int64_t parts() const;
  /// "2 replicas of 4 ranks", "2 replicas of 3 ranks or more".
  [[nodiscard]] std::string text() const;

 private:
  std::vector<int> begins_{0, 1};  // first rank of each replica, then the number of all ranks
};

}  // namespace trireme::layout
