// SPDX-License-Identifier: Apache-2.0
// Mixtures: which part a sample comes from, what happens when a run resumes with another mixture,
// and rows of documents.
#include <algorithm>
#include <numeric>
#include <set>
#include <vector>

#include <gmock/gmock.h>

#include "batches/dataset.hpp"

namespace trireme::batches {
namespace {

using testing::ElementsAre;

/// Token i is i; the hash tells the parts apart.
class Numbered : public tokens::TokenStream {
 public:
  Numbered(std::int64_t size, std::uint64_t hash) : TokenStream({size, size, hash, "counting"}) {}

 private:
  void copy(std::int64_t begin, std::span<std::int32_t> out) const override {
    for (auto& token : out) token = static_cast<std::int32_t>(begin++);
  }
};

constexpr std::uint64_t mixture_seed = 42;

Windows part(std::uint64_t hash, std::int64_t windows) {
  return {std::make_shared<Numbered>(windows * 10 + 1, hash), 0, windows * 10 + 1, 10};
}

TEST(MixtureOrder, QuotasFollowTheWeights) {
  const double weights[] = {3, 1};
  EXPECT_THAT(quotas_of(weights), ElementsAre(3072, 1024));
  const double thirds[] = {1, 1, 1};
  EXPECT_THAT(quotas_of(thirds), ElementsAre(1366, 1365, 1365));
  const double tiny[] = {1, 1e-9};
  EXPECT_THAT(quotas_of(tiny), ElementsAre(4096, 0));
}

TEST(MixtureOrder, EveryPrefixCountsEachPartWithoutAGap) {
  const MixtureOrder order(mixture_seed, {3000, 1000, 96});
  std::vector<std::int64_t> next(3);
  for (std::int64_t i = 0; i < 10'000; ++i) {
    const auto place = order.at(i);
    ASSERT_EQ(place.sample, next[place.part]++) << i;
    if (i % 997 == 0) {
      ASSERT_EQ(order.counts(i + 1), next);
    }
  }
  // Reading in another order, as other ranks do, gives the same result.
  const MixtureOrder other(mixture_seed, {3000, 1000, 96});
  for (const std::int64_t i : {9'000, 3, 4'095, 4'096, 8'191}) {
    EXPECT_EQ(other.at(i).part, order.at(i).part);
    EXPECT_EQ(other.at(i).sample, order.at(i).sample);
  }
}

TEST(Mixture, EveryWindowOfEachPartOncePerEpoch) {
  const Dataset data({part(1, 100), part(2, 1000)}, {1024, 3072}, mixture_seed);
  const auto seen = data.seen(4096);
  EXPECT_THAT(seen, ElementsAre(1024, 3072));
  EXPECT_EQ(data.num_samples(), 1100);
}

/// The windows of the samples in [begin, end) that come from the part with this content.
std::vector<std::int64_t> windows_of(const Dataset& data,
                                     const MixtureOrder& order,
                                     std::size_t which,
                                     std::int64_t base,
                                     std::int64_t begin,
                                     std::int64_t end) {
  std::vector<std::int64_t> windows;
  for (std::int64_t i = begin; i < end; ++i)
    if (order.at(i - base).part == which)
      windows.push_back(data.window(i).number);
  return windows;
}

TEST(Mixture, APartThatStaysGoesOnWhereItWas) {
  const Dataset before({part(1, 5000), part(2, 700)}, {2048, 2048}, mixture_seed);
  constexpr std::int64_t change = 3001;
  Dataset after({part(3, 300), part(1, 5000)}, {1024, 3072}, mixture_seed);
  after.continue_from(before.position(), change);
  auto windows = windows_of(before, MixtureOrder(mixture_seed, {2048, 2048}), 0, 0, 0, change);
  const auto then =
      windows_of(after, MixtureOrder(mixture_seed, {1024, 3072}), 1, change, change, change + 4000);
  windows.insert(windows.end(), then.begin(), then.end());
  ASSERT_LE(windows.size(), 5000U);
  EXPECT_EQ(std::set(windows.begin(), windows.end()).size(), windows.size())
      << "no window twice within an epoch";
  // Resuming the same mixture again from a later checkpoint changes nothing.
  Dataset again({part(3, 300), part(1, 5000)}, {1024, 3072}, mixture_seed);
  again.continue_from(after.position(), change + 100);
  EXPECT_EQ(again.position(), after.position());
  for (std::int64_t i = change; i < change + 500; ++i)
    EXPECT_EQ(again.window(i).number, after.window(i).number);
}

TEST(Mixture, TheSameMixtureGoesOnAsIfItHadNotStopped) {
  const Dataset whole({part(1, 50), part(2, 70)}, {2048, 2048}, mixture_seed);
  Dataset resumed({part(1, 50), part(2, 70)}, {2048, 2048}, mixture_seed);
  resumed.continue_from(whole.position(), 123);
  for (std::int64_t i = 123; i < 1000; ++i)
    EXPECT_EQ(resumed.window(i).number, whole.window(i).number);
  Dataset old({part(1, 50)}, {4096}, mixture_seed);
  old.continue_from("", 77);
  EXPECT_EQ(old.window(77).number, Dataset({part(1, 50)}, {4096}, mixture_seed).window(77).number);
}

TEST(Mixture, APositionThatIsNoneIsRefused) {
  Dataset data({part(1, 50)}, {4096}, mixture_seed);
  for (const char* text : {"x", "-1; 1 4096 0", "5", "5; 1 4095 0", "5; 1 4096 -1", "5; zz 4096 1"})
    EXPECT_THROW(data.continue_from(text, 10), UserError) << text;
}

TEST(Rows, ADatasetShowsThem) {
  const auto rows =
      std::make_shared<const std::vector<std::int64_t>>(std::vector<std::int64_t>{2, 15, 30, 90});
  const auto stream = std::make_shared<Numbered>(100, 1);
  const Windows windows(stream, 0, 50, 10, rows);
  ASSERT_EQ(windows.size(), 3);
  std::vector<std::int32_t> tokens(10), targets(10);
  windows.fill(1, tokens, targets);
  EXPECT_EQ(tokens[0], 15);
  EXPECT_EQ(targets[9], 25);
  EXPECT_EQ(Windows(stream, 50, 50, 9, rows).size(), 1);
  EXPECT_NE(windows.content_hash(), Windows(stream, 0, 50, 10).content_hash());
}

}  // namespace
}  // namespace trireme::batches
