// SPDX-License-Identifier: Apache-2.0
// The estimators on numbers with a known answer, and the norms of a session compared with the
// gradients of its leaves, computed separately and added in double precision.
#include "train/noise_scale.hpp"

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.hpp"

#include "session/saver.hpp"
#include "session/session.hpp"
#include "session/small_job.hpp"

namespace trireme::train {
namespace {

/// E|mean of b samples|^2 of a gradient with squared norm g and a covariance of trace s.
double expected_square(double g, double s, double b) {
  return g + s / b;
}

TEST(NoiseScale, IsWhatExpectedNormsCameFrom) {
  // By hand: |G|^2 = 3, tr = 10; batches of 2 and 10 have 8 and 4.
  EXPECT_DOUBLE_EQ(estimate_noise(8, 4, 2, 10).gradient_squared, 3);
  EXPECT_DOUBLE_EQ(estimate_noise(8, 4, 2, 10).trace, 10);
  for (const double g : {0.0, 1e-6, 2.0})
    for (const double s : {0.0, 1e-3, 50.0}) {
      const NoiseEstimate found =
          estimate_noise(expected_square(g, s, 4), expected_square(g, s, 64), 4, 64);
      EXPECT_NEAR(found.gradient_squared, g, 1e-13 * (g + s));
      EXPECT_NEAR(found.trace, s, 1e-12 * (g + s));
    }
  EXPECT_THROW(estimate_noise(1, 1, 4, 4), ContractError);
  EXPECT_THROW(NoiseScale(8, 0.5).add(1, {4, 4}, 1, 1), ContractError);
}

// Normal samples: G is `dimensions` times 0.5, each component has variance 4. So |G|^2 = 5 and
// tr = 80: the noise scale is 16 sequences. One estimate of tr from 8 leaves of 2 has a relative
// error of about sqrt(2 / (20 * 7)) = 12 %, the mean over 4000 of them 0.2 %; |G|^2 of a step of 16
// has an error of about 5 (its noise, 80 / 16, and twice its product with G), the mean 1.6 %.
TEST(NoiseScale, FindsTheScaleOfRandomGradients) {
  constexpr int dimensions = 20, leaf = 2, leaves = 8, steps = 4000;
  std::mt19937_64 random(7);
  std::normal_distribution<double> normal(0.5, 2.0);
  NoiseScale scale(100, 1 - 1.0 / steps);
  for (int step = 1; step <= steps; ++step) {
    std::vector<double> whole(dimensions, 0.0);
    double small = 0, big = 0;
    for (int k = 0; k < leaves; ++k)
      for (double& sum : whole) {
        const double mean = (normal(random) + normal(random)) / leaf;
        small += mean * mean / leaves;
        sum += mean / leaves;
      }
    for (const double mean : whole) big += mean * mean;
    const auto row = scale.add(step, {leaf, leaf * leaves}, small, big);
    EXPECT_EQ(row.step, step);
    EXPECT_TRUE(std::isnan(row.tokens) || row.tokens == 100 * row.sequences);
  }
  EXPECT_NEAR(scale.sequences(), 16, 1.0);
  EXPECT_NEAR(scale.tokens(), 1600, 100);
}

TEST(NoiseScale, AveragesEquallyAtFirstAndThenExponentially) {
  NoiseScale scale(1, 0.75);
  // |G|^2 = 2 big - small, tr = 2 (small - big).
  std::vector<double> smoothed;
  for (const double small : {2.0, 4.0, 6.0, 8.0, 18.0, 1.0})
    smoothed.push_back(scale.add(1, {1, 2}, small, 0).smoothed_trace);
  EXPECT_EQ(smoothed, (std::vector<double>{4, 6, 8, 10, 16.5, 12.875}));
}

/// Estimates of the gradient's squared norm and of the trace are valid for every batch size.
TEST(NoiseScale, GoesOnWhenTheBatchGrows) {
  NoiseScale scale(8, 0.5);
  for (std::int64_t step = 1; step <= 9; ++step) {
    const NoiseScale::Batches batches{2 * step, 16 * step};
    const auto of = [](std::int64_t b) { return expected_square(3, 10, static_cast<double>(b)); };
    const auto row = scale.add(step, batches, of(batches.leaf), of(batches.step));
    EXPECT_NEAR(row.smoothed_gradient_squared, 3, 1e-12);
    EXPECT_NEAR(row.tokens, 8 * 10.0 / 3, 1e-11);
  }
}

TEST(NoiseScale, IsNotKnownWithoutASignal) {
  NoiseScale scale(8, 0.5);
  EXPECT_TRUE(std::isnan(scale.tokens()));
  EXPECT_TRUE(std::isnan(scale.add(1, {1, 2}, 4, 1).sequences));  // |G|^2 = -2
  EXPECT_EQ(scale.add(2, {1, 2}, 4, 4).smoothed_gradient_squared, 1);
  EXPECT_EQ(scale.sequences(), 3);
  EXPECT_EQ(scale.tokens(), 24);
}

TEST(NoiseScale, GoesOnFromACheckpointToTheBit) {
  const auto term = [](int step) { return 1 + 1 / (3.0 + step); };
  NoiseScale whole(8, 0.9), first(8, 0.9);
  for (int step = 1; step <= 5; ++step) {
    whole.add(step, {1, 4}, 3 * term(step), term(step));
    first.add(step, {1, 4}, 3 * term(step), term(step));
  }
  NoiseScale second(8, 0.9);
  second.continue_from(first.packed(), "c");
  for (int step = 6; step <= 30; ++step) {
    const auto expected = whole.add(step, {1, 4}, 3 * term(step), term(step));
    const auto found = second.add(step, {1, 4}, 3 * term(step), term(step));
    EXPECT_EQ(found.smoothed_gradient_squared, expected.smoothed_gradient_squared);
    EXPECT_EQ(found.smoothed_trace, expected.smoothed_trace);
    EXPECT_EQ(found.sequences, expected.sequences);
  }
  second.continue_from("", "c");  // of a run that did not measure
  EXPECT_EQ(second.sequences(), whole.sequences());
  for (const char* bad : {"1", "1 2", "x 0x1p+0 0x1p+0", "-1 0x1p+0 0x1p+0", "1 0x1p+0 zero",
                          "1 0x1p+0 nan", "1 0x1p+0 0x1p+0 4"})
    EXPECT_THROW(second.continue_from(bad, "c"), UserError) << bad;
}

/// An initialized session of `job` whose first step begins with sample `first`.
struct Started {
  Started(const session::Job& job,
          const batches::Split& data,
          comm::World& world,
          std::uint64_t first)
      : session(job, data, world) {
    session::Saver(session, world).initialize();
    session.next_sample = first;
  }
  session::StepOutcome step(std::int64_t number) {
    return session.step(number, [] { return session::Requests{}; });
  }
  session::Session session;
};

/// The gradients of one step over the job's whole batch: the mean over sequences.
std::vector<double> gradients(const session::Job& job,
                              const batches::Split& data,
                              comm::World& world,
                              std::uint64_t first) {
  Started started(job, data, world, first);
  started.step(1);
  const auto micro_steps = static_cast<double>(started.session.batches(1).micro_steps());
  std::vector<double> all;
  for (std::size_t p = 0; p < started.session.plan.parameters().size(); ++p) {
    const View one = started.session.engine.gradient(static_cast<ParameterIndex>(p));
    for (std::int64_t i = 0; i < one.elements; ++i)
      all.push_back(static_cast<double>(one.as<float>()[i]) / micro_steps);
  }
  return all;
}

double square(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return sum;
}

TEST(NoiseScale, ComparesAStepWithItsLeaves) {
  const auto world = comm::make_self_world();
  Log log(false, "test");
  session::Job job = session::small_job();
  job.run.device = session::DeviceChoice::cpu;
  job.batch = {.sequences = 16, .micro_sequences = 2};
  job.parallel.reduction = comm::Reduction::tree;
  job.parallel.logical_shards.value = 4;  // of two micro-steps each
  job.evaluate.noise_scale.every_steps = 2;
  const auto data = session::open_data(job, "unused", *world, log);
  Started whole(job, data, *world, 0);
  EXPECT_FALSE(whole.step(1).leaf_norm_squared.has_value());
  EXPECT_TRUE(whole.step(2).leaf_norm_squared.has_value());

  // Starts from the initial parameters, so that every leaf can be recomputed.
  job.evaluate.noise_scale.every_steps = 1;
  const session::StepOutcome outcome = Started(job, data, *world, 0).step(1);
  session::Job leaf = job;
  leaf.batch.sequences = 4;
  leaf.parallel.logical_shards.value = 1;
  leaf.evaluate.noise_scale.every_steps = 0;
  double small = 0;
  std::vector<double> sum;
  for (std::uint64_t k = 0; k < 4; ++k) {
    const auto own = gradients(leaf, data, *world, 4 * k);
    sum.resize(own.size());
    for (std::size_t i = 0; i < own.size(); ++i) sum[i] += own[i] / 4;
    small += square(own) / 4;
  }
  const double big = square(sum);
  ASSERT_TRUE(outcome.leaf_norm_squared.has_value());
  EXPECT_GT(small, 1.05 * big) << "leaves that are alike prove little";
  EXPECT_NEAR(*outcome.leaf_norm_squared / small, 1, 1e-12);          // sums of 1e4 squares in fp64
  EXPECT_NEAR(outcome.grad_norm * outcome.grad_norm / big, 1, 1e-6);  // sums of leaves in fp32
}

}  // namespace
}  // namespace trireme::train
