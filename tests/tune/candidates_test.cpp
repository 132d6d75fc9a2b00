// SPDX-License-Identifier: Apache-2.0
// Which settings are candidates, and which of them change bits.
#include "tune/candidates.hpp"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme::tune {
namespace {

using comm::Reduction;
using comm::Transport;
using model::Recompute;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

TEST(MicroBatches, DivideEveryBatchOverAllRanks) {
  session::BatchConfig batch{.sequences = 48, .micro_sequences = 4};
  EXPECT_THAT(micro_batches(batch, 1), ElementsAre(1, 2, 3, 4, 6, 8, 12, 16, 24, 48));
  EXPECT_THAT(micro_batches(batch, 2), ElementsAre(1, 2, 3, 4, 6, 8, 12, 24));
  EXPECT_THAT(micro_batches(batch, 5), ElementsAre(1, 2, 5, 10)) << "of the largest share";
  EXPECT_THAT(micro_batches(batch, 16), ElementsAre(1, 3));
  batch.schedule = {{10, 72}, {20, 144}};
  EXPECT_THAT(micro_batches(batch, 2), ElementsAre(1, 2, 3, 4, 6, 12));
}

TEST(MicroBatches, NearestAreThoseOfTheSmallestFactor) {
  EXPECT_THAT(nearest({1, 2, 3, 4, 6, 8, 12, 24}, 4, 4), ElementsAre(2, 3, 4, 6));
  EXPECT_THAT(nearest({1, 2, 3, 4, 6, 8, 12, 24}, 4, 100), SizeIs(8));
  EXPECT_THAT(nearest({1, 2, 4}, 4, 1), ElementsAre(4));
}

std::vector<layout::Parameter> blocks(int count, std::int64_t elements) {
  std::vector<layout::Parameter> parameters{
      {.name = "wte.weight", .shape = {elements}, .own_bucket = true}};
  for (int i = 0; i < count; ++i)
    parameters.push_back({.name = "h." + std::to_string(i) + ".weight", .shape = {elements}});
  return parameters;
}

/// Every proposed size divides the model differently from all others and from the deck's own size.
TEST(BucketSizes, AllDiffer) {
  for (const int count : {1, 2, 5, 12, 40}) {
    const auto parameters = blocks(count, 1000);
    for (const std::int64_t own : {1L, 3000L, 40'000'000L}) {
      const auto ends = [&](std::int64_t elements) {
        const layout::Plan plan(parameters, {.ranks = 2, .bucket_elements = elements});
        std::vector<std::size_t> sizes;
        for (const layout::Bucket& bucket : plan.buckets())
          sizes.push_back(bucket.parameters.size());
        return sizes;
      };
      std::set<std::vector<std::size_t>> seen{ends(own)};
      const auto sizes = bucket_sizes({parameters, {.ranks = 2, .bucket_elements = own}});
      for (const std::int64_t elements : sizes) EXPECT_TRUE(seen.insert(ends(elements)).second);
      EXPECT_TRUE(std::ranges::is_sorted(sizes, std::ranges::greater{}));
      if (count > 2) {
        EXPECT_THAT(sizes, Not(IsEmpty()));
      }
    }
  }
}

TEST(BucketSizes, OfBoundariesByHandAreOthers) {
  const auto parameters = blocks(4, 1000);
  const layout::Options by_hand{.ranks = 2, .bucket_elements = 1, .boundaries = {"h.3.weight"}};
  EXPECT_THAT(bucket_sizes({parameters, by_hand}), Not(IsEmpty()));
}

deck::JobConfig own_setting() {
  deck::JobConfig config;
  config.batch.micro_sequences = 4;
  return config;
}

TEST(Bits, DependOnTheOrderOfAdditions) {
  const deck::JobConfig own = own_setting();
  const auto differ = [&](const deck::JobConfig& other, int ranks, Reduction reduction,
                          Transport from, Transport to) {
    return changes_bits({ranks, reduction}, own, from, other, to);
  };
  deck::JobConfig micro = own, buckets = own, recomputed = own;
  micro.batch.micro_sequences = 8;
  buckets.parallel.bucket_elements.value = 100;
  recomputed.model.recompute = Recompute::block;
  for (const auto& [reduction, word] : EnumNames<Reduction>::table)
    for (const int ranks : {1, 2, 3, 8}) {
      const bool free = ranks > 2 && reduction == Reduction::sum;
      EXPECT_TRUE(differ(micro, ranks, reduction, Transport::mpi, Transport::mpi));
      EXPECT_FALSE(differ(recomputed, ranks, reduction, Transport::mpi, Transport::mpi));
      EXPECT_EQ(differ(own, ranks, reduction, Transport::shared_memory, Transport::mpi), free);
      EXPECT_EQ(differ(buckets, ranks, reduction, Transport::mpi, Transport::mpi), free);
      EXPECT_FALSE(
          differ(buckets, ranks, reduction, Transport::shared_memory, Transport::shared_memory));
    }
}

/// Sums over replicas go around a ring that begins at an element's owner.
TEST(Bits, DependOnBucketsWhereThereAreMoreThanTwoCopies) {
  const deck::JobConfig own = own_setting();
  deck::JobConfig buckets = own;
  buckets.parallel.bucket_elements.value = 100;
  const auto differ = [&](const deck::JobConfig& other, int copies, Reduction reduction) {
    return changes_bits({2, reduction, copies}, own, Transport::shared_memory, other,
                        Transport::shared_memory);
  };
  EXPECT_FALSE(differ(buckets, 2, Reduction::sum));
  EXPECT_TRUE(differ(buckets, 3, Reduction::sum));
  EXPECT_FALSE(differ(own, 3, Reduction::sum));
  EXPECT_FALSE(differ(buckets, 3, Reduction::ordered));
}

TEST(Settings, ShowWhatDiffersAsADeckWould) {
  deck::JobConfig other = own_setting();
  EXPECT_EQ(words_of(differences(own_setting(), other)), "the deck's values");
  other.parallel.bucket_elements.value = 100;
  other.model.recompute = Recompute::gelu;
  EXPECT_EQ(words_of(differences(own_setting(), other)),
            "model.recompute=gelu parallel.bucket_elements=100");
}

TEST(BucketSizes, AreThinnedUntilNoneIsLeft) {
  EXPECT_THAT(every_other({32, 16, 8, 4}), ElementsAre(32, 8));
  EXPECT_THAT(every_other({32, 16, 8}), ElementsAre(32));
  EXPECT_THAT(every_other({32}), IsEmpty());
}

}  // namespace
}  // namespace trireme::tune
