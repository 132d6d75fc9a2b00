// SPDX-License-Identifier: Apache-2.0
// Curves with slopes and minima known by construction, and the rules that read them.
#include "tune/rate_curve.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "base/json.hpp"

#include "session/small_job.hpp"

#include "support/sequential_ranks.hpp"

namespace trireme::tune {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

/// 101 rates from 1e-6 to 1, each 10^0.06 times the one before.
SweepRequest request() {
  return {.low = 1e-6, .high = 1, .steps = 101, .multiple = 1.5};
}

std::vector<double> rates(std::size_t count = 101) {
  std::vector<double> all;
  for (std::size_t i = 0; i < count; ++i)
    all.push_back(std::pow(10.0, -6 + 0.06 * static_cast<double>(i)));
  return all;
}

/// Losses as a function of the decimal logarithm of the rate.
std::vector<double> losses(const std::function<double(double)>& of, std::size_t count = 101) {
  std::vector<double> all;
  for (const double rate : rates(count)) all.push_back(of(std::log10(rate)));
  return all;
}

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

TEST(RateCurve, FitsAStraightLineExactly) {
  const auto found = rate_curve(rates(), losses([](double x) { return 2 - 0.5 * x; }), request());
  ASSERT_EQ(found.points.size(), 101U);
  for (const RatePoint& point : found.points) {
    EXPECT_NEAR(point.smoothed, point.loss, 1e-12);
    if (&point != &found.points.front() && &point != &found.points.back()) {
      EXPECT_NEAR(point.slope, -0.5 / std::log(10), 1e-12);
    }
  }
  EXPECT_FALSE(found.diverges.has_value());
}

// A fall of 3 around 1e-4 and a rise of 6 around 1e-1: the slope is steepest in the middle of the
// fall. The loss is 1.5 times its minimum, 4, when the rise has reached 2 of its 6: at -1 - ln 2 /
// 8.
TEST(RateCurve, FindsTheSteepestFallAndWhereItDiverges) {
  const auto curve = [](double x) {
    return 7 - 3 * sigmoid(8 * (x + 4)) + 6 * sigmoid(8 * (x + 1));
  };
  const auto found = rate_curve(rates(), losses(curve), request());
  ASSERT_TRUE(found.steepest && found.diverges && found.suggested);
  EXPECT_NEAR(std::log10(*found.steepest), -4, 0.031);                   // half a step
  EXPECT_NEAR(std::log10(*found.diverges), -1 - std::log(2) / 8, 0.12);  // two steps
  EXPECT_EQ(*found.suggested, *found.steepest);
  const std::string table = rate_table(found);
  EXPECT_THAT(table, HasSubstr("decreases fastest at a rate of 9.55e-05"));
  EXPECT_THAT(table, HasSubstr("Suggested: optimizer.learning_rate=9.5e-05"));
  EXPECT_LE(std::ranges::count(table, '\n'), 25);
}

TEST(RateCurve, SuggestsATenthOfADivergenceThatIsNear) {
  const auto curve = [](double x) {
    return 7 - 3 * sigmoid(8 * (x + 4)) + 9 * sigmoid(8 * (x + 3));
  };
  const auto found = rate_curve(rates(), losses(curve), request());
  ASSERT_TRUE(found.steepest && found.diverges && found.suggested);
  EXPECT_LT(*found.diverges / 10, *found.steepest);
  EXPECT_EQ(*found.suggested, *found.diverges / 10);
}

TEST(RateCurve, IsNotMisledByOneStep) {
  auto values = losses([](double x) { return 7 - 3 * sigmoid(8 * (x + 4)); });
  values[60] -= 0.5;  // x = -2.4
  const auto found = rate_curve(rates(), values, request());
  ASSERT_TRUE(found.steepest.has_value());
  EXPECT_NEAR(std::log10(*found.steepest), -4, 0.2);
}

TEST(RateCurve, ReportsWhenThereIsNothingToSuggest) {
  const auto flat = rate_curve(rates(), losses([](double) { return 5; }), request());
  EXPECT_FALSE(flat.steepest || flat.diverges || flat.suggested);
  EXPECT_THAT(rate_table(flat), HasSubstr("in this range. Sweep to higher rates"));
  EXPECT_THAT(rate_table(flat), Not(HasSubstr("suggested")));
  const auto rising = rate_curve(rates(), losses([](double x) { return 12 + x; }), request());
  EXPECT_FALSE(rising.steepest || rising.suggested);
  EXPECT_TRUE(rising.diverges.has_value());
  EXPECT_THAT(rate_table(rising), HasSubstr("in this range. Sweep from lower rates"));
}

TEST(RateCurve, CountsAGradientThatIsNotFiniteAsDivergence) {
  const auto fall = losses([](double x) { return 7 - 3 * sigmoid(8 * (x + 4)); }, 60);
  const auto found = rate_curve(rates(60), fall, request(), 0.5);
  EXPECT_EQ(found.diverges, 0.5);
  const auto one = rate_curve(std::vector{1e-3}, std::vector{4.0}, request());
  EXPECT_EQ(one.points.front().smoothed, 4.0);
  EXPECT_FALSE(one.suggested.has_value());
  EXPECT_THROW(rate_curve(rates(3), fall, request()), ContractError);
}

TEST(RateCurve, EndsASweepAboveTheMultipleOfItsMinimum) {
  const std::vector<double> all{4, 2, 2, 2, 2, 2, 6.9, 2.2};
  Divergence divergence(request());
  for (std::size_t i = 0; i < all.size(); ++i)  // means of five: 2.4, 2, 2.98, 3.02
    EXPECT_EQ(divergence.add(all[i]), i == 7) << i;
  EXPECT_EQ(rate_curve(rates(8), all, request()).diverges, rates(8)[5]);
  EXPECT_FALSE(rate_curve(rates(7), std::span(all).first(7), request()).diverges.has_value());
}

TEST(RateCurve, NeedsASharedCacheForTextOnSeveralHosts) {
  session::Job job = session::small_job();
  job.data.train = {};
  job.data.train.text = {"missing"};
  try {
    test::SequentialRanks(2, 1).run([&](comm::World& world) {
      Log log(false, "test");
      find_rate(job, world, log, request());
    });
    FAIL() << "no error";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), HasSubstr("data.cache: "));
  }
}

TEST(RateCurve, IsWrittenAsJson) {
  auto found = rate_curve(std::vector{0.25, 0.5}, std::vector{4.0, 3.0}, request());
  found.ended = "no reason";
  EXPECT_EQ(Json::parse(rate_json(found)).dump(),
            "{\"filetype\":\"trireme-rates\",\"version\":[1,0],\"ended\":\"no reason\","
            "\"suggested\":null,\"steepest\":null,\"diverges\":null,\"rate\":[0.25,0.5],"
            "\"loss\":[4.0,3.0],\"smoothed\":[4.0,3.0],\"slope\":[0.0,0.0]}");
}

}  // namespace
}  // namespace trireme::tune
