// SPDX-License-Identifier: Apache-2.0
#include "layout/replica_ranks.hpp"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/text.hpp"

namespace trireme::layout {

ReplicaRanks::ReplicaRanks(const std::vector<int>& sizes) : begins_{0} {
  TRIREME_EXPECT(!sizes.empty() && std::ranges::min(sizes) >= 1, "{} replicas", sizes.size());
  for (const int size : sizes) begins_.push_back(begins_.back() + size);
}

ReplicaRanks::ReplicaRanks(int ranks, int replicas) : begins_{0} {
  TRIREME_EXPECT(replicas >= 1 && replicas <= ranks, "{} replicas of {} ranks", replicas, ranks);
  for (int replica = 0; replica < replicas; ++replica)
    begins_.push_back(begins_.back() + ranks / replicas + (replica < ranks % replicas ? 1 : 0));
}

int ReplicaRanks::smallest() const {
  int least = ranks();
  for (int replica = 0; replica < count(); ++replica) least = std::min(least, size(replica));
  return least;
}

int ReplicaRanks::of(int rank) const {
  TRIREME_EXPECT(rank >= 0 && rank < ranks(), "rank {} of {}", rank, ranks());
  return static_cast<int>(std::ranges::upper_bound(begins_, rank) - begins_.begin()) - 1;
}

std::int64_t ReplicaRanks::parts() const {
  std::int64_t multiple = 1;
  for (int replica = 0; replica < count() && multiple < std::int64_t{1} << 31U; ++replica)
    multiple = std::lcm(multiple, std::int64_t{size(replica)});
  return multiple * count();
}

std::string ReplicaRanks::text() const {
  const std::string size = counted(smallest(), "rank");
  return fmt::format("{} of {}{}", counted(count(), "replica"), size, equal() ? "" : " or more");
}

}  // namespace trireme::layout
