// SPDX-License-Identifier: Apache-2.0
// Gradients that are sent as products of factors, on ranks that are threads.
#include "reduce/power_sgd.hpp"

#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include <gtest/gtest.h>

#include "base/random.hpp"

#include "ops/low_rank.hpp"

#include "reduce/one_store.hpp"
#include "reduce/steps.hpp"

namespace trireme::reduce {
namespace {

using trireme::testing::OneStore;
using trireme::testing::run_ranks;
using trireme::testing::Setting;
using trireme::testing::ThreadRank;

using Numbers = std::vector<double>;

ParallelConfig config_of(std::int64_t gradient_rank,
                         layout::Shard shard = layout::Shard::none,
                         bool feedback = true) {
  ParallelConfig config;
  config.gradient_rank.value = gradient_rank;
  config.shard = shard;
  config.error_feedback = feedback;
  return config;
}

/// A matrix [rows, columns] of doubles.
struct Reference {
  std::size_t rows, columns;
  Numbers values = Numbers(rows * columns);

  double& at(std::size_t row, std::size_t column) { return values[row * columns + column]; }
  [[nodiscard]] double at(std::size_t row, std::size_t column) const {
    return values[row * columns + column];
  }
};

Reference product(const Reference& a, const Reference& b, bool a_transposed, bool b_transposed) {
  const auto of = [](const Reference& m, bool transposed, std::size_t i, std::size_t j) {
    return transposed ? m.at(j, i) : m.at(i, j);
  };
  Reference c{a_transposed ? a.columns : a.rows, b_transposed ? b.rows : b.columns};
  const std::size_t inner = a_transposed ? a.rows : a.columns;
  for (std::size_t i = 0; i < c.rows; ++i)
    for (std::size_t j = 0; j < c.columns; ++j)
      for (std::size_t k = 0; k < inner; ++k)
        c.at(i, j) += of(a, a_transposed, i, k) * of(b, b_transposed, k, j);
  return c;
}

/// Columns, made orthonormal by projections; zero columns are replaced as ops/low_rank.hpp does.
void orthonormalize(Reference& m) {
  for (std::size_t c = 0; c < m.columns; ++c) {
    double norm = 0;
    for (std::size_t i = 0; i < m.rows; ++i) norm += m.at(i, c) * m.at(i, c);
    if (norm == 0)
      for (std::size_t i = 0; i < m.rows; ++i)
        m.at(i, c) = static_cast<double>(
            ops::replacement_element(static_cast<std::int64_t>(c), static_cast<std::int64_t>(i)));
    for (std::size_t other = 0; other <= c; ++other) {
      double part = 0;
      for (std::size_t i = 0; i < m.rows; ++i) part += m.at(i, c) * m.at(i, other);
      for (std::size_t i = 0; i < m.rows; ++i)
        m.at(i, c) = other == c ? m.at(i, c) / std::sqrt(part) : m.at(i, c) - part * m.at(i, other);
    }
  }
}

Reference gradient_of(std::size_t rows, std::size_t columns, int rank, int step) {
  Reference m{rows, columns};
  const RandomKey key = RandomKey::of(17, Draw::initialize);
  for (std::size_t i = 0; i < m.values.size(); ++i) {
    const auto word = philox(key, i, static_cast<std::uint64_t>(rank * 100 + step)).w[0];
    m.values[i] = static_cast<double>(static_cast<float>(word) * 0x1p-31F - 1.0F);
  }
  return m;
}

std::vector<float> rounded(const Reference& m) {
  return {m.values.begin(), m.values.end()};
}

class PowerSgdAtRanks : public ::testing::TestWithParam<int> {};

TEST_P(PowerSgdAtRanks, SendsTheProjectionThatThePaperDefines) {
  const int ranks = GetParam();
  for (const auto& [rows, columns, rank] :
       {std::tuple<std::size_t, std::size_t, std::size_t>{20, 33, 3}, {33, 20, 2}, {16, 16, 1}})
    run_ranks(ranks, [&](ThreadRank& self) {
      OneStore store(
          self, config_of(static_cast<std::int64_t>(rank)),
          {{"m", {static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns)}}});
      const bool wide = rows <= columns;
      Reference second{wide ? columns : rows, rank};
      std::vector<Reference> errors(static_cast<std::size_t>(ranks), Reference{rows, columns});
      for (int step = 0; step < 4; ++step) {
        Reference first{wide ? rows : columns, rank}, second_sum{second.rows, rank};
        for (int r = 0; r < ranks; ++r) {
          Reference& with_error = errors[static_cast<std::size_t>(r)];
          const Reference gradient = gradient_of(rows, columns, r, step);
          for (std::size_t i = 0; i < gradient.values.size(); ++i)
            with_error.values[i] += gradient.values[i];
          const Reference term = product(with_error, second, !wide, false);
          for (std::size_t i = 0; i < term.values.size(); ++i) first.values[i] += term.values[i];
        }
        orthonormalize(first);
        for (Reference& with_error : errors) {
          const Reference term = product(with_error, first, wide, false);
          for (std::size_t i = 0; i < term.values.size(); ++i)
            second_sum.values[i] += term.values[i];
          const Reference sent =
              wide ? product(first, term, false, true) : product(term, first, false, true);
          for (std::size_t i = 0; i < sent.values.size(); ++i)
            with_error.values[i] -= sent.values[i];
        }
        second = second_sum;
        const Reference expected =
            wide ? product(first, second, false, true) : product(second, first, false, true);
        const auto sum = store.sum(rounded(gradient_of(rows, columns, self.world.rank(), step)));
        for (std::size_t i = 0; i < expected.values.size(); ++i)
          ASSERT_NEAR(static_cast<double>(sum[i]), expected.values[i], 2e-5) << step << " " << i;
      }
    });
}

/// Buckets, overlap, shards and cached addresses do not change any bit.
TEST_P(PowerSgdAtRanks, HasTheSameBitsWithEverySwitch) {
  const int ranks = GetParam(), steps = 3;
  std::vector<float> expected;
  for (Setting setting : trireme::testing::settings_of_every_switch()) {
    if (layout::shards_gradients(setting.shard))
      continue;
    setting.gradient_rank = 2;
    run_ranks(ranks, [&](ThreadRank& rank) {
      const auto made = trireme::testing::train(setting, steps, rank.communicator, *rank.device,
                                                *rank.compute, &rank.world);
      if (rank.world.rank() == 0 && expected.empty())
        expected = made;
      rank.world.barrier();
      EXPECT_EQ(made, expected) << setting.text();
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, PowerSgdAtRanks, ::testing::Values(2, 3, 4));

TEST(PowerSgd, OfOneRankIsNone) {
  const Setting plain;
  Setting factors;
  factors.gradient_rank = 1;
  run_ranks(1, [&](ThreadRank& rank) {
    const auto train = [&](const Setting& setting) {
      return trireme::testing::train(setting, 4, rank.communicator, *rank.device, *rank.compute,
                                     &rank.world);
    };
    EXPECT_EQ(train(factors), train(plain));
  });
}

/// From the second step on, factors span the space of a matrix of their rank.
TEST(PowerSgd, IsExactForMatricesOfItsRank) {
  run_ranks(2, [](ThreadRank& self) {
    OneStore store(self, config_of(2, layout::Shard::none, false), {{"m", {24, 40}}});
    const Reference matrix =
        product(gradient_of(24, 2, 0, 0), gradient_of(2, 40, 1, 0), false, false);
    store.sum(rounded(matrix));
    const auto sum = store.sum(rounded(matrix));
    for (std::size_t i = 0; i < matrix.values.size(); ++i)
      EXPECT_NEAR(static_cast<double>(sum[i]), 2 * matrix.values[i], 1e-5);
  });
}

/// A bias, and a matrix whose factors would not be smaller, are sent uncompressed.
TEST(PowerSgd, SendsOtherParametersWhole) {
  run_ranks(3, [](ThreadRank& self) {
    for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{70}, {6, 12}}) {
      OneStore store(self, config_of(4), {{"p", shape}});
      std::vector<float> gradient(static_cast<std::size_t>(store.plan().parameter({}).elements()));
      for (std::size_t i = 0; i < gradient.size(); ++i)
        gradient[i] = static_cast<float>(i) + static_cast<float>(self.world.rank());
      const auto sum = store.sum(gradient);
      for (std::size_t i = 0; i < gradient.size(); ++i)
        EXPECT_EQ(sum[i], static_cast<float>(3 * i + 3));
      EXPECT_TRUE(store.store.carried().empty());
    }
  });
}

/// The sent part and the errors of all ranks add up to the sum of all gradients.
TEST(PowerSgd, LosesNothing) {
  run_ranks(2, [](ThreadRank& self) {
    OneStore store(self, config_of(1), {{"m", {18, 30}}});
    Numbers sent(18 * 30), all(18 * 30);
    for (int step = 0; step < 20; ++step) {
      const auto sum = store.sum(rounded(gradient_of(18, 30, self.world.rank(), step)));
      for (std::size_t i = 0; i < sent.size(); ++i) {
        sent[i] += static_cast<double>(sum[i]);
        for (int rank = 0; rank < 2; ++rank) all[i] += gradient_of(18, 30, rank, step).values[i];
      }
    }
    const View error = store.store.carried().front().values;
    const Numbers mine(error.as<float>(), error.as<float>() + error.elements);
    const auto errors = self.world.gather_all(std::span<const double>(mine));
    double largest = 0;
    for (std::size_t i = 0; i < sent.size(); ++i) {
      EXPECT_NEAR(sent[i] + errors[i] + errors[i + sent.size()], all[i], 1e-4);
      largest = std::max(largest, std::abs(errors[i]));
    }
    EXPECT_GT(largest, 0.5);
  });
}

/// Gradient descent on the sum over ranks of |x - a_rank|^2 / 2, whose optimum is the mean of all
/// a. Returns the distance to it after `steps` steps.
double distance_to_optimum(int steps, bool feedback) {
  constexpr int ranks = 2;
  double distance = 0;
  run_ranks(ranks, [&](ThreadRank& self) {
    OneStore store(self, config_of(1, layout::Shard::none, feedback), {{"x", {10, 14}}});
    const Reference own = gradient_of(10, 14, self.world.rank(), 0);
    std::vector<float> x(140), gradient(140);
    for (int step = 0; step < steps; ++step) {
      for (std::size_t i = 0; i < x.size(); ++i)
        gradient[i] = x[i] - static_cast<float>(own.values[i]);
      const auto sum = store.sum(gradient);
      for (std::size_t i = 0; i < x.size(); ++i) x[i] -= 0.05F * sum[i];
    }
    double squares = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double mean =
          (gradient_of(10, 14, 0, 0).values[i] + gradient_of(10, 14, 1, 0).values[i]) / 2;
      squares += (static_cast<double>(x[i]) - mean) * (static_cast<double>(x[i]) - mean);
    }
    if (self.world.rank() == 0)
      distance = std::sqrt(squares);
    self.world.barrier();
  });
  return distance;
}

TEST(PowerSgd, ReachesAnOptimumWithErrorFeedback) {
  const double start = distance_to_optimum(0, true);
  EXPECT_LT(distance_to_optimum(1000, true), 1e-3 * start);
}

TEST(PowerSgd, RecoversFromAGradientThatIsNotFinite) {
  run_ranks(2, [](ThreadRank& self) {
    OneStore store(self, config_of(1), {{"m", {16, 16}}});
    std::vector<float> gradient(256, 3.0F);
    store.sum(gradient);
    if (self.world.rank() == 1)
      gradient[70] = std::numeric_limits<float>::infinity();
    const auto wrong = store.sum(gradient);
    EXPECT_TRUE(std::ranges::any_of(wrong, [](float value) { return !std::isfinite(value); }));
    gradient[70] = 3.0F;
    for (int step = 0; step < 3; ++step)
      for (const float value : store.sum(gradient)) EXPECT_TRUE(std::isfinite(value));
  });
}

TEST(PowerSgd, HoldsWhatThePlanCounts) {
  for (const layout::Shard shard : {layout::Shard::none, layout::Shard::optimizer})
    for (const bool feedback : {true, false})
      run_ranks(3, [&](ThreadRank& rank) {
        const ParallelConfig config = config_of(2, shard, feedback);
        OneStore store(rank, config, trireme::testing::table());
        // wte [7, 30] and c [40, 20] have factors. Every parameter has a bucket, and the data sent
        // for it fits into one granule.
        std::int64_t carried = 0;
        for (const Carried& one : store.store.carried())
          if (one.holder == Carried::Holder::all)
            carried += one.values.elements;
        EXPECT_EQ(carried, 2 * (30 + 40));
        const std::int64_t granule = store.plan().granule();
        const CompressionBytes bytes = compression_bytes(config, store.plan());
        const std::int64_t errors = feedback ? store.plan().flat_elements() : 0;
        EXPECT_EQ(bytes.carried, 4 * (errors + 2 * granule));
        EXPECT_EQ(bytes.held, bytes.carried + 4 * 6 * granule);
        const layout::Bucket& bucket =
            store.plan().bucket(store.plan().placement(ParameterIndex{3}).bucket);
        EXPECT_EQ(compressed_bytes(config, store.plan(), bucket), 4 * 2 * 2 * 2 * granule / 3);
        EXPECT_EQ(factor_elements(config, store.plan()), (6 + 2) * granule);
        rank.world.barrier();
      });
}

}  // namespace
}  // namespace trireme::reduce
