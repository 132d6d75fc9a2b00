// SPDX-License-Identifier: Apache-2.0
// The rule that chooses a setting and the deck that is written, with made-up measurements.
#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"

#include "deck/deck.hpp"
#include "tune/candidates.hpp"
#include "tune/tune_report.hpp"

namespace trireme::tune {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(Ratio, IsOfTheSameRounds) {
  const Ratio ratio = ratio_of({1, 4, 9}, {2, 4, 10});
  EXPECT_DOUBLE_EQ(ratio.median, 0.9);
  EXPECT_DOUBLE_EQ(ratio.low, 0.7);
  EXPECT_DOUBLE_EQ(ratio.high, 0.95);
  EXPECT_THROW(ratio_of({1}, {1, 2}), ContractError);
  // A speed that changes from round to round affects both settings.
  EXPECT_DOUBLE_EQ(ratio_of({0.9, 9, 90}, {1, 10, 100}).high, 0.9);
}

TEST(Ratio, BetterIsOnePercentInMostRounds) {
  EXPECT_TRUE((Ratio{0.98, 0.97, 0.99}.measurably_better()));
  EXPECT_TRUE((Ratio{0.99, 0.98, 0.999}.measurably_better()));
  EXPECT_FALSE((Ratio{0.991, 0.98, 0.995}.measurably_better()));
  EXPECT_FALSE((Ratio{0.95, 0.90, 1.0}.measurably_better()));
  EXPECT_FALSE(Ratio{}.measurably_better());
}

TEST(Choice, OneRoundInEightMayBeAbove) {
  const std::vector<double> own(8, 1.0);
  EXPECT_TRUE(confirms({0.9, 0.9, 0.9, 1.5, 0.9, 0.9, 0.9, 0.9}, own));
  EXPECT_FALSE(confirms({0.9, 0.9, 0.9, 1.5, 0.9, 1.0, 0.9, 0.9}, own));
  EXPECT_FALSE(confirms(std::vector(8, 0.995), own));
  EXPECT_FALSE(confirms({1.5, 0.9}, {1, 1}));
  EXPECT_TRUE(confirms({0.9, 0.9}, {1, 1}));
}

/// For settings without a gain, in rounds that vary by a tenth, few are confirmed.
TEST(Choice, SeldomConfirmsWhatGainsNothing) {
  std::mt19937 random(11);
  std::normal_distribution<double> pace(1, 0.1);
  int confirmed = 0;
  constexpr int series = 10'000;
  for (int i = 0; i < series; ++i) {
    std::vector<double> seconds(8), own(8);
    for (double& one : seconds) one = pace(random);
    for (double& one : own) one = pace(random);
    confirmed += confirms(seconds, own) ? 1 : 0;
  }
  EXPECT_NEAR(static_cast<double>(confirmed) / series, 9.0 / 256, 0.01);
}

TEST(Choice, IsTheBestOrTheSimplestNearIt) {
  const Ratio own{}, good{0.900, 0.89, 0.91}, near{0.905, 0.89, 0.92}, fair{0.95, 0.94, 0.96};
  EXPECT_FALSE(best_of({}));
  EXPECT_FALSE(best_of({{own}}));
  EXPECT_FALSE(best_of({{own}, {{0.95, 0.9, 1.02}, false, 1}}));
  EXPECT_EQ(best_of({{own}, {fair, false, 1}, {good, false, 2}}), 2U);
  EXPECT_EQ(best_of({{own}, {good, true, 1}, {near, false, 2}}), 2U);
  EXPECT_EQ(best_of({{own}, {good, false, 2}, {near, false, 1}}), 2U);
  EXPECT_EQ(best_of({{own}, {good, true, 2}, {fair, false, 1}}), 1U);
}

/// For any measurement: never a setting that is not measurably better, never far from the best.
TEST(Choice, KeepsItsPromise) {
  std::mt19937 random(3);
  std::uniform_real_distribution<double> median(0.9, 1.1), spread(0, 0.05);
  for (int round = 0; round < 1000; ++round) {
    std::vector<Trial> trials{{}};
    double least = 1;
    for (int i = 0; i < 5; ++i) {
      const double m = median(random);
      trials.push_back(
          {{m, m - spread(random), m + spread(random)}, i % 2 == 0, static_cast<std::size_t>(i)});
      if (trials.back().ratio.measurably_better())
        least = std::min(least, m);
    }
    const auto best = best_of(trials);
    ASSERT_EQ(best.has_value(), least < 1);
    if (best) {
      EXPECT_TRUE(trials[*best].ratio.measurably_better());
      EXPECT_LE(trials[*best].ratio.median, least + least_gain);
    }
  }
}

constexpr const char* deck_text =
    "# mine\nrun: {directory: x, steps: 3}\nbatch:\n  sequences: 48   # all\n"
    "  micro_sequences: 4  # few\n";

/// Micro-batches of 8 instead of 4, and whether they were better in the second measurement.
Tuning tuning(bool better) {
  Tuning one;
  one.ranks = 2;
  one.processor = "a processor";
  Run own{.candidate = {}, .seconds = {1.0, 1.1}, .ratio = {}}, other = own;
  own.candidate.config.batch.micro_sequences = 4;
  other.candidate.config.batch.micro_sequences = 8;
  other.candidate.changes_bits = true;
  other.seconds = {0.9, 1.0};
  other.ratio = ratio_of(other.seconds, own.seconds);
  one.runs = {own, other};
  one.repeated = Repeated{
      .run = 1, .seconds = {0.9, better ? 0.9 : 1.1}, .own_seconds = {1.0, 1.0}, .ratio = {}};
  one.repeated->ratio = ratio_of(one.repeated->seconds, one.repeated->own_seconds);
  return one;
}

TEST(TunedDeck, IsTheUsersTextWithTheChosenValues) {
  const auto text = tuned_deck(tuning(true), deck_text, "a build", {"run.threads=1"});
  ASSERT_TRUE(text);
  EXPECT_THAT(*text, StartsWith("# trireme tune: 2 ranks on 1 host, a processor\n#   a build\n"));
  EXPECT_THAT(*text, HasSubstr("\n#   Chosen: batch.micro_sequences=8\n"));
  EXPECT_THAT(*text, HasSubstr("0.900 (0.900 to 0.900)"));
  EXPECT_THAT(*text, HasSubstr("The setting changes rounding"));
  EXPECT_THAT(*text, HasSubstr("overrides of the deck: run.threads=1\n"));
  EXPECT_THAT(*text, HasSubstr("\n\n# mine\nrun: {directory: x, steps: 3}\nbatch:\n  sequences: 48 "
                               "  # all\n  micro_sequences: 8  # few\n"));
}

TEST(TunedDeck, StaysAsItIsWhereNothingIsBetter) {
  Tuning same = tuning(false);
  EXPECT_EQ(&same.chosen(), same.runs.data());
  const auto text = tuned_deck(same, deck_text, "", {});
  ASSERT_TRUE(text);
  EXPECT_TRUE(text->ends_with(std::string("\n\n") + deck_text)) << *text;
  EXPECT_THAT(*text, HasSubstr("in eight above 1). Keep the deck's values"));
  EXPECT_THAT(*text, Not(HasSubstr("The setting changes rounding")));
  same.repeated.reset();
  EXPECT_THAT(tuning_table(same), HasSubstr("Keep the deck's values"));
  same.runs.resize(1);
  EXPECT_THAT(tuning_table(same), HasSubstr("No other setting is possible"));
}

/// Command line values of tuned keys must be in the deck that is written.
TEST(TunedDeck, HoldsOverridesOfTunedKeys) {
  Tuning same = tuning(false);
  same.runs.front().candidate.config.batch.micro_sequences = 2;
  const auto text = tuned_deck(same, deck_text, "", {"batch.micro_sequences=2", "run.seed=1"});
  ASSERT_TRUE(text);
  EXPECT_THAT(*text, HasSubstr("  micro_sequences: 2  # few\n"));
  EXPECT_THAT(*text, HasSubstr("overrides of the deck: run.seed=1\n"));
}

TEST(TunedDeck, OfATunedDeckHasOneBlockOfComments) {
  const auto once = tuned_deck(tuning(true), deck_text, "first", {});
  const auto twice = tuned_deck(tuning(true), *once, "second", {});
  ASSERT_TRUE(twice);
  EXPECT_THAT(*twice, Not(HasSubstr("first")));
  EXPECT_EQ(tuned_deck(tuning(true), *twice, "first", {}), once);
}

}  // namespace
}  // namespace trireme::tune
