// SPDX-License-Identifier: Apache-2.0
// Properties of every table, rank count and padding, and known difficult cases.
#include <algorithm>
#include <numeric>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "layout/models.hpp"

namespace trireme::layout {
namespace {

using namespace testing;

std::vector<int> rank_counts() {
  std::vector<int> counts(64);
  std::iota(counts.begin(), counts.end(), 1);
  counts.insert(counts.end(), {96, 97, 128, 949, 1000, 1024, 4096});
  return counts;
}

constexpr Padding paddings[] = {Padding::aligned, Padding::megatron,
                                Padding::megatron_high_bandwidth, Padding::none};

/// Every element is in exactly one piece of one rank, and no piece crosses its shard's end.
void expect_owned_once(const Plan& plan) {
  std::vector<std::int64_t> reached(plan.parameters().size(), 0);
  for (std::size_t b = 0; b < plan.buckets().size(); ++b) {
    const auto bucket = static_cast<BucketIndex>(b);
    for (int rank = 0; rank < plan.ranks(); ++rank) {
      std::int64_t end = 0;
      for (const Piece& piece : plan.find_pieces(bucket, rank)) {
        const Placement& place = plan.placement(piece.parameter);
        ASSERT_EQ(place.bucket, bucket);
        ASSERT_GE(piece.elements, 1);
        ASSERT_GE(piece.shard_begin, end);
        end = piece.shard_begin + piece.elements;
        ASSERT_LE(end, plan.bucket(bucket).shard_elements);
        ASSERT_EQ(plan.bucket(bucket).begin + rank * plan.bucket(bucket).shard_elements +
                      piece.shard_begin,
                  place.begin + piece.parameter_begin);
        // Ranks are in flat order, so the pieces of a parameter follow one another without gaps.
        ASSERT_EQ(piece.parameter_begin, reached[at(piece.parameter)]);
        reached[at(piece.parameter)] += piece.elements;
      }
    }
  }
  for (std::size_t p = 0; p < reached.size(); ++p)
    ASSERT_EQ(reached[p], plan.parameters()[p].elements()) << plan.parameters()[p].name;
}

void expect_rules(const Plan& plan) {
  std::int64_t flat = 0, owned = 0;
  std::size_t next_parameter = plan.parameters().size();
  for (std::size_t b = 0; b < plan.buckets().size(); ++b) {
    const Bucket& bucket = plan.buckets()[b];
    ASSERT_EQ(bucket.begin % 64, 0);
    ASSERT_GE(bucket.begin, flat);
    ASSERT_LT(bucket.begin, flat + 64);
    if (plan.options().padding != Padding::none) {
      ASSERT_EQ(bucket.begin, flat) << "a gap between buckets";
    }
    ASSERT_EQ(bucket.elements % plan.granule(), 0);
    ASSERT_EQ(bucket.elements, bucket.shard_elements * plan.ranks());
    ASSERT_LE(bucket.unpadded, bucket.elements);
    ASSERT_LT(bucket.elements - bucket.unpadded, plan.granule());
    if (plan.options().padding == Padding::aligned) {
      ASSERT_EQ(bucket.shard_elements % 64, 0) << "bf16 shards are not 128-byte aligned";
    }
    ASSERT_EQ(plan.owned_begin(static_cast<BucketIndex>(b)), owned);
    owned += bucket.shard_elements;

    std::int64_t end = bucket.begin;
    ASSERT_FALSE(bucket.parameters.empty());
    for (std::size_t i = 0; i < bucket.parameters.size(); ++i) {
      const ParameterIndex index = bucket.parameters[i];
      ASSERT_EQ(at(index), --next_parameter) << "not in reverse registration order";
      const Placement& place = plan.placement(index);
      ASSERT_EQ(at(place.bucket), b);
      ASSERT_EQ(place.begin % 64, 0);
      ASSERT_GE(place.begin, end);
      ASSERT_LT(place.begin, end + 64);
      if (plan.parameter(index).own_bucket) {
        ASSERT_EQ(bucket.parameters.size(), 1U);
      }
      // All parameters but the last left the bucket open.
      end = place.begin + place.elements;
      if (i + 1 < bucket.parameters.size()) {
        ASSERT_LT(end - bucket.begin, plan.options().bucket_elements);
      }
    }
    ASSERT_EQ(bucket.unpadded, end - bucket.begin);
    flat = bucket.begin + bucket.elements;
  }
  ASSERT_EQ(next_parameter, 0U) << "a parameter has no bucket";
  ASSERT_EQ(plan.flat_elements(), flat);
  ASSERT_EQ(plan.owned_elements(), owned);
}

class PlanAtRanks : public ::testing::TestWithParam<int> {};

TEST_P(PlanAtRanks, KeepsItsRulesForRandomTables) {
  const int ranks = GetParam();
  std::mt19937 random(static_cast<unsigned>(ranks));
  const int tables = ranks <= 64 ? 12 : 3;
  for (int t = 0; t < tables; ++t) {
    const auto table = random_table(random);
    const std::int64_t bucket_elements = 1 + static_cast<std::int64_t>(random() % 9000);
    for (const Padding padding : paddings) {
      const Plan plan(table, {ranks, bucket_elements, padding});
      expect_rules(plan);
      expect_owned_once(plan);
      if (HasFatalFailure())
        FAIL() << "table " << t << ", padding " << word(padding);
    }
  }
}

/// Same rules and buckets as without replicas; only the owners of shards differ.
TEST_P(PlanAtRanks, WithReplicasKeepsItsRulesAndItsBuckets) {
  const int all_ranks = GetParam();
  std::mt19937 random(static_cast<unsigned>(all_ranks));
  const auto table = random_table(random);
  for (const int replicas : {2, 3, 4}) {
    if (all_ranks % replicas != 0)
      continue;
    for (const Padding padding : paddings) {
      SCOPED_TRACE(word(padding));
      const Plan without(table, {all_ranks, 2000, padding});
      const Plan plan(table, {.ranks = all_ranks / replicas,
                              .bucket_elements = 2000,
                              .padding = padding,
                              .replicas = {all_ranks, replicas}});
      ASSERT_EQ(plan.all_ranks(), all_ranks);
      ASSERT_EQ(plan.granule(), without.granule());
      ASSERT_EQ(plan.flat_elements(), without.flat_elements());
      ASSERT_EQ(plan.owned_elements(), replicas * without.owned_elements());
      ASSERT_NE(plan.fingerprint(), without.fingerprint());
      expect_rules(plan);
      expect_owned_once(plan);
      std::vector<int> kept(static_cast<std::size_t>(replicas));
      for (std::size_t b = 0; b < plan.buckets().size(); ++b) {
        ASSERT_EQ(plan.buckets()[b].shard_elements % replicas, 0) << "cut across replicas";
        ++kept[static_cast<std::size_t>(plan.primary_replica(static_cast<BucketIndex>(b)))];
      }
      ASSERT_LE(*std::ranges::max_element(kept) - *std::ranges::min_element(kept), 1);
    }
  }
}

TEST(ReplicaRanks, KnowTheReplicaOfEveryRank) {
  const ReplicaRanks unequal(std::vector{3, 1, 2});
  EXPECT_EQ(unequal.count(), 3);
  EXPECT_EQ(unequal.ranks(), 6);
  EXPECT_EQ(unequal.smallest(), 1);
  EXPECT_FALSE(unequal.equal());
  EXPECT_EQ(unequal.parts(), 18);
  EXPECT_EQ(unequal.text(), "3 replicas of 1 rank or more");
  for (const auto& [rank, replica] : {std::pair{0, 0}, {2, 0}, {3, 1}, {4, 2}, {5, 2}})
    EXPECT_EQ(unequal.of(rank), replica) << rank;
  const ReplicaRanks divided(8, 3);
  EXPECT_EQ(std::tuple(divided.size(0), divided.size(1), divided.size(2)), std::tuple(3, 3, 2));
  EXPECT_EQ(ReplicaRanks(6, 3).parts(), 6);
  EXPECT_THROW(ReplicaRanks(2, 3), ContractError);
  EXPECT_THROW(ReplicaRanks(std::vector{2, 0}), ContractError);
}

/// For replicas of any sizes: the buckets are the same, the parts of one replica's ranks cover the
/// bucket, and every owner's part is in its own shard.
TEST(Plan, CutsShardsIntoPartsThatARankOfEachReplicaOwns) {
  std::mt19937 random(5);
  for (int t = 0; t < 40; ++t) {
    std::vector<int> sizes(2 + random() % 3);
    for (int& size : sizes) size = 1 + static_cast<int>(random() % 5);
    const ReplicaRanks replicas(sizes);
    const auto table = random_table(random);
    const Padding padding = paddings[random() % std::size(paddings)];
    SCOPED_TRACE(replicas.text() + ", padding " + word(padding));
    std::vector<Plan> plans;
    for (const int size : sizes)
      plans.emplace_back(
          table,
          Options{
              .ranks = size, .bucket_elements = 2000, .padding = padding, .replicas = replicas});
    for (std::size_t b = 0; b < plans[0].buckets().size(); ++b) {
      const auto bucket = static_cast<BucketIndex>(b);
      std::vector<std::int64_t> covered(sizes.size());
      for (int rank = 0; rank < replicas.ranks(); ++rank) {
        const Plan& own = plans[static_cast<std::size_t>(replicas.of(rank))];
        ASSERT_EQ(own.fingerprint(), plans[0].fingerprint());
        const std::int64_t shard = own.bucket(bucket).shard_elements;
        std::int64_t end = 0;
        for (const SharedPart& part : own.shared_parts(bucket, rank)) {
          ASSERT_EQ(part.begin, end);
          ASSERT_GT(part.elements, 0);
          ASSERT_EQ(part.elements % replicas.count(), 0);
          ASSERT_EQ(part.owners.size(), sizes.size());
          ASSERT_EQ(part.owners[static_cast<std::size_t>(replicas.of(rank))], rank);
          const std::int64_t first = own.rank_in_replica(rank) * shard + part.begin;
          for (std::size_t r = 0; r < sizes.size(); ++r) {
            const std::int64_t its = plans[r].bucket(bucket).shard_elements;
            const std::int64_t begin = plans[r].rank_in_replica(part.owners[r]) * its;
            ASSERT_EQ(replicas.of(part.owners[r]), static_cast<int>(r));
            ASSERT_TRUE(begin <= first && first + part.elements <= begin + its);
          }
          end += part.elements;
        }
        ASSERT_EQ(end, shard);
        covered[static_cast<std::size_t>(replicas.of(rank))] += end;
      }
      for (const std::int64_t elements : covered)
        ASSERT_EQ(elements, plans[0].bucket(bucket).elements);
    }
  }
}

TEST(Plan, KnowsTheReplicaOfARankOfTheRun) {
  const Plan plan(table_of({100}), {.ranks = 3, .replicas = {6, 2}});
  for (int rank = 0; rank < 6; ++rank) {
    EXPECT_EQ(plan.replica_of(rank), rank / 3);
    EXPECT_EQ(plan.rank_in_replica(rank), rank % 3);
  }
}

TEST_P(PlanAtRanks, PutsTheSameParametersTogetherAsOnOneRank) {
  const int ranks = GetParam();
  std::mt19937 random(7);
  for (int t = 0; t < 10; ++t) {
    const auto table = random_table(random);
    const std::int64_t bucket_elements = 1 + static_cast<std::int64_t>(random() % 9000);
    const Plan one(table, {1, bucket_elements, Padding::none});
    for (const Padding padding : paddings) {
      const Plan many(table, {ranks, bucket_elements, padding});
      ASSERT_EQ(one.buckets().size(), many.buckets().size());
      for (std::size_t b = 0; b < one.buckets().size(); ++b) {
        ASSERT_EQ(one.buckets()[b].parameters, many.buckets()[b].parameters);
        ASSERT_EQ(one.buckets()[b].unpadded, many.buckets()[b].unpadded);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, PlanAtRanks, ::testing::ValuesIn(rank_counts()));

TEST(Granule, IsTheDocumentedMultiple) {
  EXPECT_EQ(granule(Padding::aligned, 1), 128);
  EXPECT_EQ(granule(Padding::aligned, 2), 128);
  EXPECT_EQ(granule(Padding::aligned, 3), 384);
  EXPECT_EQ(granule(Padding::aligned, 97), 12416);
  EXPECT_EQ(granule(Padding::megatron, 3), 384);
  EXPECT_EQ(granule(Padding::megatron, 64), 128);
  EXPECT_EQ(granule(Padding::megatron_high_bandwidth, 12), 196'608);
  EXPECT_EQ(granule(Padding::megatron_high_bandwidth, 1000), 8'192'000);
  EXPECT_EQ(granule(Padding::none, 97), 97);
}

TEST(Plan, MayGiveARankOnlyPadding) {
  const Plan plan(table_of({100}), {4, 1000, Padding::aligned});
  ASSERT_EQ(plan.buckets().size(), 1U);
  EXPECT_EQ(plan.buckets()[0].elements, 256);
  EXPECT_EQ(plan.find_pieces(BucketIndex{0}, 0).size(), 1U);
  EXPECT_EQ(plan.find_pieces(BucketIndex{0}, 1).front().elements, 36);
  EXPECT_TRUE(plan.find_pieces(BucketIndex{0}, 2).empty());
  EXPECT_TRUE(plan.find_pieces(BucketIndex{0}, 3).empty());
}

TEST(Plan, KeepsAParameterLargerThanABucketWhole) {
  const Plan plan(table_of({10, 5000, 20}), {2, 100, Padding::aligned});
  ASSERT_EQ(plan.buckets().size(), 2U);
  EXPECT_EQ(plan.buckets()[0].parameters, (std::vector{ParameterIndex{2}, ParameterIndex{1}}));
  EXPECT_EQ(plan.placement(ParameterIndex{1}).elements, 5000);
  EXPECT_EQ(plan.buckets()[0].unpadded, 64 + 5000);
}

TEST(OwnBucket, IsAloneWhereverItIsRegistered) {
  const auto buckets_of = [](std::size_t own, std::vector<std::int64_t> sizes) {
    auto table = table_of(sizes);
    table[own].own_bucket = true;
    const Plan plan(table, {3, 1'000'000, Padding::aligned});
    std::vector<std::vector<int>> found;
    for (const Bucket& bucket : plan.buckets()) {
      found.emplace_back();
      for (const ParameterIndex index : bucket.parameters)
        found.back().push_back(static_cast<int>(index));
    }
    return found;
  };
  using Lists = std::vector<std::vector<int>>;
  EXPECT_EQ(buckets_of(0, {50, 60, 70}), (Lists{{2, 1}, {0}}));
  EXPECT_EQ(buckets_of(1, {50, 60, 70}), (Lists{{2}, {1}, {0}}));
  EXPECT_EQ(buckets_of(2, {50, 60, 70}), (Lists{{2}, {1, 0}}));
  EXPECT_EQ(buckets_of(0, {50}), (Lists{{0}}));
}

TEST(Plan, FindsThePiecesOfAWholeBucket) {
  const Plan plan(table_of({10, 100, 30}), {4, 1000, Padding::aligned});
  const auto pieces = plan.find_pieces(BucketIndex{0}, 0, plan.buckets()[0].elements);
  ASSERT_EQ(pieces.size(), 3U);
  EXPECT_EQ(pieces[1].parameter, ParameterIndex{1});
  EXPECT_EQ(pieces[1].parameter_begin, 0);
  EXPECT_EQ(pieces[1].shard_begin, 64);
  EXPECT_EQ(pieces[1].elements, 100);
}

TEST(Fingerprint, ChangesWithEveryInputOfThePlan) {
  const auto table = table_of({10, 1000, 30});
  const Options options{2, 300, Padding::aligned};
  const std::uint64_t reference = Plan(table, options).fingerprint();
  EXPECT_EQ(Plan(table, options).fingerprint(), reference);

  EXPECT_NE(Plan(table, {3, 300, Padding::aligned}).fingerprint(), reference);
  EXPECT_NE(Plan(table, {2, 301, Padding::aligned}).fingerprint(), reference);
  EXPECT_NE(Plan(table, {2, 300, Padding::megatron}).fingerprint(), reference);
  auto changed = table;
  changed[1].name = "other";
  EXPECT_NE(Plan(changed, options).fingerprint(), reference);
  changed = table;
  changed[1].shape = {10, 100};
  EXPECT_NE(Plan(changed, options).fingerprint(), reference);
  changed = table;
  changed[0].own_bucket = true;
  EXPECT_NE(Plan(changed, options).fingerprint(), reference);
  changed = table;
  changed[0].decay = !changed[0].decay;
  EXPECT_NE(Plan(changed, options).fingerprint(), reference);
}

TEST(Plan, RefusesInvalidParametersAndOptions) {
  EXPECT_THROW(Plan({}, {}), ContractError);
  EXPECT_THROW(Plan(table_of({10, 0}), {}), ContractError);
  auto twins = table_of({10, 20});
  twins[1].name = twins[0].name;
  EXPECT_THROW(Plan(twins, {}), ContractError);
  EXPECT_THROW(Plan(table_of({10}), {0, 100, Padding::aligned}), ContractError);
  EXPECT_THROW(Plan(table_of({10}), {1, 0, Padding::aligned}), ContractError);
  std::vector<Parameter> huge{{"huge", {std::int64_t{1} << 40, std::int64_t{1} << 40}}};
  EXPECT_THROW(Plan(huge, {}), ContractError);
}

TEST(Order, OfRegistrationIsTheReverseOfTheUsualOne) {
  const std::vector<Parameter> table{{"a", {64}}, {"b", {128}}, {"c", {64}}, {"d", {192}}};
  const Plan usual(table, {2, 200});
  const Plan forward(table, {2, 200, Padding::aligned, BucketOrder::registration});
  EXPECT_LT(usual.placement(ParameterIndex{3}).begin, usual.placement(ParameterIndex{0}).begin);
  EXPECT_LT(forward.placement(ParameterIndex{0}).begin, forward.placement(ParameterIndex{3}).begin);
  EXPECT_EQ(forward.buckets()[0].parameters,
            (std::vector{ParameterIndex{0}, ParameterIndex{1}, ParameterIndex{2}}));
  EXPECT_NE(usual.fingerprint(), forward.fingerprint());
}

TEST(Boundaries, CloseBucketsAfterTheNamedParametersAndNowhereElse) {
  const std::vector<Parameter> table{
      {"tied", {64}, true}, {"a", {64}}, {"b", {128}}, {"c", {64}}, {"d", {192}}};
  const Plan plan(table, {2, 1, Padding::aligned, BucketOrder::reverse, {"c"}});
  ASSERT_EQ(plan.buckets().size(), 3U);
  EXPECT_EQ(plan.buckets()[0].parameters, (std::vector{ParameterIndex{4}, ParameterIndex{3}}));
  EXPECT_EQ(plan.buckets()[1].parameters, (std::vector{ParameterIndex{2}, ParameterIndex{1}}));
  EXPECT_EQ(plan.buckets()[2].parameters, (std::vector{ParameterIndex{0}}));
  EXPECT_THROW(Plan(table, {2, 1, Padding::aligned, BucketOrder::reverse, {"e"}}), ContractError);
}

}  // namespace
}  // namespace trireme::layout
