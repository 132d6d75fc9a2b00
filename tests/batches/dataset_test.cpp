// SPDX-License-Identifier: Apache-2.0
#include "batches/dataset.hpp"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "batches/counting_stream.hpp"

namespace trireme::batches {
namespace {

/// A dataset with one part.
Dataset dataset(std::shared_ptr<const tokens::TokenStream> stream,
                std::int64_t begin,
                std::int64_t count,
                std::int64_t context,
                std::optional<std::uint64_t> seed) {
  return {{Windows(std::move(stream), begin, count, context)}, {MixtureOrder::block}, seed};
}

Split split_of(std::int64_t tokens, const DataRequirements& wanted) {
  return split({Stream{std::make_shared<CountingStream>(tokens), nullptr}}, std::nullopt, wanted);
}

DataRequirements requirements(std::int64_t context, std::int64_t sequences, double fraction) {
  return {.context = context,
          .sequences = sequences,
          .vocabulary = 1 << 20,
          .validation_fraction = fraction,
          .seed = 42};
}

TEST(Dataset, WindowsShareOneTokenAndStayInside) {
  // 41 tokens: four windows of 10 + 1 end exactly at the last token; with 40 the last is lost.
  const auto stream = std::make_shared<CountingStream>(100);
  EXPECT_EQ(dataset(stream, 0, 40, 10, {}).num_samples(), 3);
  const Dataset data = dataset(stream, 5, 41, 10, {});
  ASSERT_EQ(data.num_samples(), 4);
  std::vector<std::int32_t> tokens(10), targets(10);
  for (std::int64_t sample = 0; sample < 9; ++sample) {
    data.fill(sample, tokens, targets);
    for (std::int32_t i = 0; i < 10; ++i) {
      EXPECT_EQ(tokens[static_cast<std::size_t>(i)], 5 + (sample % 4) * 10 + i);
      EXPECT_EQ(targets[static_cast<std::size_t>(i)], tokens[static_cast<std::size_t>(i)] + 1);
    }
  }
  EXPECT_LE(targets.back(), 45);
}

TEST(Dataset, ContextOfOne) {
  const Dataset data = dataset(std::make_shared<CountingStream>(2), 0, 2, 1, {});
  std::vector<std::int32_t> token(1), target(1);
  data.fill(7, token, target);
  EXPECT_EQ(token[0], 0);
  EXPECT_EQ(target[0], 1);
}

TEST(Dataset, EveryWindowOncePerEpochInAnotherOrder) {
  const Dataset data = dataset(std::make_shared<CountingStream>(1001), 0, 1001, 10, 42);
  ASSERT_EQ(data.num_samples(), 100);
  std::vector<std::vector<std::int64_t>> epochs(2);
  for (std::int64_t sample = 0; sample < 200; ++sample)
    epochs[static_cast<std::size_t>(sample / 100)].push_back(data.window(sample).number);
  EXPECT_NE(epochs[0], epochs[1]);
  for (auto& epoch : epochs) EXPECT_EQ(std::set(epoch.begin(), epoch.end()).size(), 100U);
}

// Ranks read different samples in different orders, each from its own dataset.
TEST(Dataset, SamplesDoNotDependOnWhoAsksWhen) {
  const auto make = [] { return dataset(std::make_shared<CountingStream>(2000), 0, 2000, 7, 42); };
  const Dataset whole = make();
  const std::int64_t samples = 700;  // more than two epochs of 285
  for (const std::int64_t ranks : {1, 2, 3, 4}) {
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      const Dataset own = make();
      std::vector<std::int32_t> tokens(7), targets(7), wanted(7), wanted_targets(7);
      for (std::int64_t sample = samples - 1 - rank; sample >= 0; sample -= ranks) {
        own.fill(sample, tokens, targets);
        whole.fill(sample, wanted, wanted_targets);
        ASSERT_EQ(tokens, wanted);
        ASSERT_EQ(targets, wanted_targets);
      }
    }
  }
}

TEST(Dataset, RefusesSpansOfAnotherLength) {
  const Dataset data = dataset(std::make_shared<CountingStream>(100), 0, 100, 10, 1);
  std::vector<std::int32_t> tokens(10), targets(9);
  EXPECT_THROW(data.fill(0, tokens, targets), ContractError);
}

TEST(Split, ValidationIsTheLastPart) {
  const auto parts = split_of(1000, requirements(10, 4, 0.1));
  EXPECT_EQ(parts.train.num_tokens(), 900);
  ASSERT_TRUE(parts.validation);
  EXPECT_EQ(parts.validation->num_tokens(), 100);
  std::vector<std::int32_t> tokens(10), targets(10);
  parts.validation->fill(0, tokens, targets);
  EXPECT_EQ(tokens[0], 900);
  for (std::int64_t sample = 0; sample < parts.train.num_samples(); ++sample) {
    parts.train.fill(sample, tokens, targets);
    EXPECT_LT(targets.back(), 900);
  }
}

TEST(Split, WithoutValidation) {
  EXPECT_FALSE(split_of(1000, requirements(10, 4, 0)).validation);
}

TEST(Split, ReportsEverythingAtOnce) {
  DataRequirements wanted = requirements(10, 4, 0.1);
  wanted.vocabulary = 20;
  try {
    split_of(40, wanted);
    FAIL() << "no UserError";
  } catch (const UserError& error) {
    ASSERT_EQ(error.findings().size(), 3U);
    EXPECT_THAT(error.what(), testing::HasSubstr("model.vocabulary: 20 is too small: "
                                                 "the data contain tokens up to 39"));
    EXPECT_THAT(error.what(), testing::HasSubstr("36 training tokens make 3 sequences of context "
                                                 "10, but the largest step needs 4"));
    EXPECT_THAT(error.what(), testing::HasSubstr("0.1 of 40 tokens is 4"));
  }
}

std::size_t num_findings(std::int64_t tokens, const DataRequirements& wanted) {
  try {
    split_of(tokens, wanted);
  } catch (const UserError& error) {
    return error.findings().size();
  }
  return 0;
}

TEST(Split, TheSmallestThatFits) {
  EXPECT_EQ(num_findings(52, {10, 4, 52, 11.0 / 52, 0}), 0U);
  EXPECT_EQ(num_findings(51, {10, 4, 52, 11.0 / 51, 0}), 1U);
  EXPECT_EQ(num_findings(51, {10, 4, 52, 10.0 / 51, 0}), 1U);
  EXPECT_EQ(num_findings(52, {10, 4, 51, 11.0 / 52, 0}), 1U);
}

}  // namespace
}  // namespace trireme::batches
