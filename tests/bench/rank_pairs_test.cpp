// SPDX-License-Identifier: Apache-2.0
#include "bench/rank_pairs.hpp"

#include <numeric>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Hosts = std::vector<std::string>;

TEST(RankPairs, AreEveryTwoMembersOnceAndNoneTwiceInARound) {
  for (int count = 0; count < 10; ++count) {
    std::vector<int> members(static_cast<std::size_t>(count));
    std::iota(members.begin(), members.end(), 3);
    const auto rounds = rounds_of(members);
    std::set<std::pair<int, int>> all;
    for (const auto& pairs : rounds) {
      std::set<int> busy;
      for (const auto& pair : pairs) {
        EXPECT_LT(pair.first, pair.second);
        EXPECT_TRUE(all.insert(pair).second);
        EXPECT_TRUE(busy.insert(pair.first).second && busy.insert(pair.second).second);
      }
      EXPECT_EQ(pairs.size(), static_cast<std::size_t>(count / 2));
    }
    EXPECT_EQ(all.size(), static_cast<std::size_t>(count * (count - 1) / 2)) << count;
  }
}

TEST(RankPairs, HaveOneRankOfEachHost) {
  EXPECT_THAT(members_of({"a", "a", "b", "c", "b"}), ElementsAre(0, 2, 3));
  EXPECT_THAT(members_of({"a", "a", "a"}), ElementsAre(0, 1));
  EXPECT_THAT(members_of({"a"}), ElementsAre(0));
}

TEST(RankPairs, OfOneHostAreItsFirstTwoRanks) {
  const auto world = comm::make_mpi_world();
  const auto pairs =
      measure_rank_pairs(*world, Hosts(static_cast<std::size_t>(world->size()), "a"), 1e9);
  if (world->size() == 1) {
    EXPECT_THAT(pairs, IsEmpty());
    return;
  }
  ASSERT_EQ(pairs.size(), 1U);
  EXPECT_EQ((std::pair{pairs[0].first, pairs[0].second}), (std::pair{0, 1}));
}

TEST(RankPairs, OfHostsAreMeasuredInRounds) {
  const auto world = comm::make_mpi_world();
  const auto size = static_cast<std::size_t>(world->size());
  Hosts hosts;  // as if every rank had its own host
  for (std::size_t rank = 0; rank < size; ++rank) hosts.push_back(std::to_string(rank));
  const auto pairs = measure_rank_pairs(*world, hosts, 1e9);
  EXPECT_EQ(pairs.size(), size * (size - 1) / 2);
  for (const RankPair& pair : pairs) {
    EXPECT_GT(pair.latency_s, 0);
    EXPECT_LT(pair.latency_s, 10);
    EXPECT_GT(pair.bytes_per_s, 1e5);
    EXPECT_LT(pair.bytes_per_s, 1e13);
  }
  EXPECT_EQ(measure_rank_pairs(*world, hosts, 0).size(), size / 2) << "one round, when time is up";
}

}  // namespace
}  // namespace trireme::bench
