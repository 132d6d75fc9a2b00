// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "base/error.hpp"

#include "plan/link_cost.hpp"

namespace trireme::plan {
namespace {

std::vector<Point> on_a_line(double latency, double per_byte) {
  std::vector<Point> points;
  for (std::int64_t bytes = 1024; bytes <= 1 << 26; bytes *= 4)
    points.push_back({bytes, latency + per_byte * static_cast<double>(bytes)});
  return points;
}

Collective collective_of(std::vector<Point> points) {
  const Line line = fit_line(points);
  return {.latency_s = line.latency_s,
          .seconds_per_byte = line.seconds_per_byte,
          .residual = line.residual,
          .points = std::move(points)};
}

TEST(Fit, FindsTheLineThatPointsLieOn) {
  const Line line = fit_line(on_a_line(3e-5, 2e-9));
  EXPECT_NEAR(line.latency_s, 3e-5, 1e-13);
  EXPECT_NEAR(line.seconds_per_byte, 2e-9, 1e-17);
  EXPECT_LT(line.residual, 1e-9);
}

/// The best relative fit of (1 byte, 1 s) and (1 byte, 2 s) by a latency is 6/5 s; by hand.
TEST(Fit, MinimizesRelativeErrors) {
  const std::vector<Point> points = {{1, 1.0}, {1, 2.0}};
  const Line line = fit_line(points);
  const double at_one = line.latency_s + line.seconds_per_byte;
  EXPECT_NEAR(at_one, 1.2, 1e-12);
  EXPECT_NEAR(line.residual, std::sqrt((0.2 * 0.2 + 0.4 * 0.4) / 2), 1e-12);
}

TEST(Fit, HasNoNegativeParts) {
  const Line falling = fit_line(std::vector<Point>{{1000, 2.0}, {2000, 1.0}});
  EXPECT_GT(falling.latency_s, 0);
  EXPECT_EQ(falling.seconds_per_byte, 0);
  const Line steep = fit_line(std::vector<Point>{{1000, 1.0}, {2000, 10.0}});
  EXPECT_EQ(steep.latency_s, 0);
  EXPECT_GT(steep.seconds_per_byte, 0);
}

TEST(Fit, RefusesWhatIsNoMeasurement) {
  EXPECT_THROW(fit_line({}), ContractError);
  EXPECT_THROW(fit_line(std::vector<Point>{{1, 0.0}}), ContractError);
}

TEST(MeasuredSeconds, GoThroughEveryPoint) {
  const Collective c = collective_of({{1000, 1e-5}, {4000, 9e-5}, {16000, 2e-4}});
  for (const Point& point : c.points)
    EXPECT_DOUBLE_EQ(measured_seconds(c, static_cast<double>(point.bytes)), point.seconds);
  EXPECT_DOUBLE_EQ(measured_seconds(c, 2500), 5e-5);
  EXPECT_DOUBLE_EQ(measured_seconds(c, 17000), 2e-4 + 1000 * c.seconds_per_byte);
  EXPECT_DOUBLE_EQ(measured_seconds(c, 0), std::min(c.latency_s, 1e-5));
}

TEST(SecondsOn, OtherRanksTakeLatenciesAndBytesOfARing) {
  constexpr double latency = 4e-6, per_byte = 1e-9, bytes = 1 << 22;
  const Collective two = collective_of(on_a_line(latency, per_byte));
  EXPECT_EQ(seconds_on(two, bytes, 2, 1), 0);
  EXPECT_NEAR(seconds_on(two, bytes, 2, 2), latency + per_byte * bytes, 1e-12);
  for (const double ranks : {3.0, 4.0, 64.0, 1024.0}) {
    // With two ranks a round has one latency and half of the bytes.
    const double by_hand = (ranks - 1) * latency + 2 * (ranks - 1) / ranks * bytes * per_byte;
    EXPECT_NEAR(seconds_on(two, bytes, 2, static_cast<std::int64_t>(ranks)), by_hand,
                1e-9 * by_hand);
  }
}

TEST(SecondsOn, GrowWithBytesAndRanks) {
  const Collective c = collective_of({{1024, 2e-5}, {65536, 3e-5}, {1 << 22, 9e-4}});
  double before = 0;
  for (double bytes = 64; bytes < 1e9; bytes *= 3) {
    const double seconds = seconds_on(c, bytes, 2, 8);
    EXPECT_GT(seconds, before);
    before = seconds;
  }
  for (const std::int64_t ranks : {2, 4, 16, 4096})
    EXPECT_LT(seconds_on(c, 1e8, 2, ranks), seconds_on(c, 1e8, 2, 2 * ranks));
}

}  // namespace
}  // namespace trireme::plan
