// SPDX-License-Identifier: Apache-2.0
// Muon compared with a loop in double precision, on ranks that are threads (without shards:
// muon_mpi_test.cpp tests transfers between ranks), and the sizes and FLOP that it reports to a
// plan.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <omp.h>

#include "base/error.hpp"
#include "layout/budget.hpp"

#include "reduce/thread_ranks.hpp"

#include "optim/matrices.hpp"
#include "optim/rule.hpp"
#include "optim/schedule.hpp"
#include "optim/training.hpp"

namespace trireme::optim {
namespace {

using namespace trireme::testing;

TrainingSetting muon_setting() {
  TrainingSetting setting;
  setting.kind = Kind::muon;
  setting.table = matrix_table();
  setting.parallel.shard = layout::Shard::none;
  setting.exact_sums = true;
  setting.parallel.bucket_elements.value = 700;
  return setting;
}

TrainingResult train_muon(int ranks, const TrainingSetting& setting) {
  std::vector<TrainingResult> results(static_cast<std::size_t>(ranks));
  run_ranks(ranks, [&](ThreadRank& rank) {
    omp_set_num_threads(1);  // for this thread's loops: ranks share the cores
    Training training(setting, rank.world, rank.communicator, *rank.device, *rank.compute);
    results[static_cast<std::size_t>(rank.world.rank())] = training.run();
  });
  for (const TrainingResult& other : results) EXPECT_EQ(other.parameters, results[0].parameters);
  return results[0];
}

using Row = std::vector<double>;

/// X (a I + b XtX + c (XtX)^2) five times in place, then times 0.2 sqrt(max).
void orthogonalize_in_double(double* x, std::int64_t rows, std::int64_t columns) {
  const auto m = static_cast<std::size_t>(rows), n = static_cast<std::size_t>(columns);
  double squares = 0;
  for (std::size_t i = 0; i < m * n; ++i) squares += x[i] * x[i];
  for (std::size_t i = 0; i < m * n; ++i) x[i] /= std::sqrt(squares) + 1e-7;
  for (int step = 0; step < 5; ++step) {
    Row gram(m * m);
    for (std::size_t i = 0; i < m; ++i)
      for (std::size_t j = 0; j < m; ++j)
        for (std::size_t k = 0; k < n; ++k) gram[i * m + j] += x[i * n + k] * x[j * n + k];
    const auto times_gram = [&](const Row& from) {
      Row to(m * n);
      for (std::size_t i = 0; i < m; ++i)
        for (std::size_t j = 0; j < m; ++j)
          for (std::size_t k = 0; k < n; ++k) to[i * n + k] += gram[i * m + j] * from[j * n + k];
      return to;
    };
    const Row cubed = times_gram(Row(x, x + m * n)), fifth = times_gram(cubed);
    for (std::size_t i = 0; i < m * n; ++i)
      x[i] = 3.4445 * x[i] - 4.7750 * cubed[i] + 2.0315 * fifth[i];
  }
  const double scale = 0.2 * std::sqrt(static_cast<double>(std::max(rows, columns)));
  for (std::size_t i = 0; i < m * n; ++i) x[i] *= scale;
}

/// Masters of the hidden matrices after all steps, computed as in the papers. By parameter; empty
/// for those that are not matrices.
std::vector<Row> matrices_in_double(int ranks, const TrainingSetting& setting) {
  const auto& table = setting.table;
  const OptimizerConfig config = setting.optimizer();
  std::vector<Row> masters(table.size()), momenta(table.size());
  for (std::size_t p = 0; p < table.size(); ++p)
    for (std::int64_t i = 0; i < table[p].elements(); ++i) {
      masters[p].push_back(static_cast<double>(initial_value(p, i)));
      momenta[p].push_back(0);
    }
  for (int step = 1; step <= setting.steps; ++step) {
    std::vector<Row> gradients(table.size());
    double squares = 0;
    for (std::size_t p = 0; p < table.size(); ++p)
      for (std::int64_t i = 0; i < table[p].elements(); ++i) {
        double sum = 0;
        for (int rank = 0; rank < ranks; ++rank)
          sum += static_cast<double>(gradient_value(rank, step, p, i, true));
        gradients[p].push_back(sum / ranks);
        squares += gradients[p].back() * gradients[p].back();
      }
    const double clip = std::min(1.0, config.clip_norm / (std::sqrt(squares) + 1e-6));
    const double rate = learning_rate(config, step, setting.steps);
    const double decay = config.weight_decay * decay_share(setting, step);
    double b = 0.95;
    if (step <= setting.momentum_warmup_steps)
      b = 0.85 + 0.1 * (step - 1) / static_cast<double>(setting.momentum_warmup_steps);
    for (std::size_t p = 0; p < table.size(); ++p) {
      Row direction;
      for (std::size_t i = 0; i < gradients[p].size(); ++i) {
        const double g = clip * gradients[p][i];
        momenta[p][i] = b * momenta[p][i] + (1 - b) * g;
        direction.push_back((1 - b) * g + b * momenta[p][i]);
      }
      double* at = direction.data();
      for (const std::int64_t rows : table[p].matrices) {
        orthogonalize_in_double(at, rows, table[p].shape[1]);
        at += rows * table[p].shape[1];
      }
      for (std::size_t i = 0; i < masters[p].size(); ++i)
        masters[p][i] -= rate * (direction[i] + decay * masters[p][i]);
    }
  }
  for (std::size_t p = 0; p < table.size(); ++p)
    if (table[p].matrices.empty())
      masters[p].clear();
  return masters;
}

class MuonAtRanks : public ::testing::TestWithParam<int> {};

void expect_the_double_precision_loop(int ranks, const TrainingSetting& setting) {
  const TrainingResult result = train_muon(ranks, setting);
  const auto expected = matrices_in_double(ranks, setting);
  // Five steps multiply an error by at most 3.4445 each and add three rounding errors
  // (tests/ops/optimizer/orthogonalize_test.cpp). Scale and rate multiply it. Errors add up.
  double growth = 0;
  for (int i = 0; i < 5; ++i) growth = (growth + 3 * 1.21 * 1.21) * 3.4445;
  const double of_a_step =
      growth * 0x1p-23 * 0.2 * std::sqrt(65.0) * setting.optimizer().learning_rate;
  std::size_t begin = 0;
  for (std::size_t p = 0; p < expected.size(); ++p) {
    for (std::size_t i = 0; i < expected[p].size(); ++i)
      ASSERT_NEAR(result.parameters[begin + i], expected[p][i], setting.steps * of_a_step)
          << setting.table[p].name << "[" << i << "]";
    begin += static_cast<std::size_t>(setting.table[p].elements());
  }
}

TEST_P(MuonAtRanks, FollowsTheDoublePrecisionLoop) {
  expect_the_double_precision_loop(GetParam(), muon_setting());
}

TEST_P(MuonAtRanks, FollowsItUnderSchedules) {
  TrainingSetting setting = muon_setting();
  setting.weight_decay_schedule = DecaySchedule::linear;
  setting.momentum_warmup_steps = 3;
  expect_the_double_precision_loop(GetParam(), setting);
}

INSTANTIATE_TEST_SUITE_P(, MuonAtRanks, ::testing::Values(1, 3));

/// The elements of one parameter in a result.
std::vector<float> of_parameter(const TrainingSetting& setting,
                                const TrainingResult& result,
                                std::size_t parameter) {
  std::int64_t begin = 0;
  for (std::size_t p = 0; p < parameter; ++p) begin += setting.table[p].elements();
  const auto from = result.parameters.begin() + begin;
  return {from, from + setting.table[parameter].elements()};
}

TEST(Muon, UpdatesOtherParametersByAdamW) {
  TrainingSetting setting = muon_setting();
  const TrainingResult muon = train_muon(1, setting);
  setting.kind = Kind::adamw;
  const TrainingResult adamw = train_muon(1, setting);
  for (std::size_t p = 0; p < setting.table.size(); ++p) {
    const bool same = of_parameter(setting, muon, p) == of_parameter(setting, adamw, p);
    EXPECT_EQ(same, setting.table[p].matrices.empty()) << setting.table[p].name;
  }
}

TEST(Muon, WritesNothingInAStepThatIsNotFinite) {
  run_ranks(1, [](ThreadRank& rank) {
    omp_set_num_threads(1);
    TrainingSetting setting = muon_setting();
    setting.on_non_finite = OnNonFinite::skip;
    Training training(setting, rank.world, rank.communicator, *rank.device, *rank.compute);
    const auto state = [&] {
      std::vector<float> all = training.parameters();
      for (const StatePiece& piece : training.optimizer().state())
        for (const View& slot : piece.slots)
          all.insert(all.end(), slot.as<float>(), slot.as<float>() + slot.elements);
      return all;
    };
    training.backward(1);
    ASSERT_EQ(training.update(1).not_finite, "");
    const auto before = state();
    training.poison(1, 17, std::numeric_limits<float>::quiet_NaN());
    training.backward(2);
    ASSERT_THAT(training.update(2).not_finite, ::testing::HasSubstr("qkv[17]"));
    ASSERT_EQ(state(), before);
    // Nothing was orthogonalized: the NaN would have spread over the whole matrix in the gradient's
    // memory.
    const View qkv = training.engine().gradient(ParameterIndex{1});
    ASSERT_EQ(std::count_if(qkv.as<float>(), qkv.as<float>() + qkv.elements,
                            [](float value) { return std::isnan(value); }),
              1);
    training.poison(1, 17, 0.0F);
    training.backward(3);
    ASSERT_EQ(training.update(3).not_finite, "");
    ASSERT_NE(state(), before);
  });
}

/// If the sums of micro-steps have separate memory, Muon orthogonalizes the sums.
TEST(Muon, GivesTheSameBitsWhereGradientsAreReducedPerMicroStep) {
  omp_set_num_threads(1);
  TrainingSetting setting = muon_setting();
  const auto reference = train_muon(1, setting);
  setting.parallel.reduce_every = reduce::ReduceEvery::micro_step;
  for (const auto& [shard, name] : EnumNames<layout::Shard>::table) {
    setting.parallel.shard = shard;
    const auto result = train_muon(1, setting);
    EXPECT_EQ(result.parameters, reference.parameters) << name;
    EXPECT_EQ(result.grad_norms, reference.grad_norms) << name;
  }
}

TEST(Muon, MatricesHaveNoSecondMoment) {
  run_ranks(1, [](ThreadRank& rank) {
    omp_set_num_threads(1);
    const TrainingSetting setting = muon_setting();
    Training training(setting, rank.world, rank.communicator, *rank.device, *rank.compute);
    training.run();
    for (const StatePiece& piece : training.optimizer().state()) {
      const bool whole = !setting.table[at(piece.parameter)].matrices.empty();
      EXPECT_EQ(piece.slots[1].elements, piece.elements());
      EXPECT_EQ(piece.slots[2].elements, whole ? 0 : piece.elements())
          << setting.table[at(piece.parameter)].name;
    }
  });
}

TEST(Muon, AllocatesTheBytesOfTheBudget) {
  for (const int ranks : {1, 2, 3})
    for (const DType dtype : {DType::f32, DType::bf16}) {
      std::vector<std::vector<std::int64_t>> bytes(static_cast<std::size_t>(ranks));
      TrainingSetting setting = muon_setting();
      setting.dtype = dtype;
      setting.moment_dtype = dtype == DType::bf16 ? FloatDType::bf16 : FloatDType::fp32;
      run_ranks(ranks, [&](ThreadRank& rank) {
        const Training training(setting, rank.world, rank.communicator, *rank.device,
                                *rank.compute);
        bytes[static_cast<std::size_t>(rank.world.rank())] = training.optimizer().state_bytes();
        rank.world.barrier();
      });
      const layout::Plan plan(setting.table, {ranks, 700, layout::Padding::aligned});
      const layout::Budget budget =
          layout::budget_of(plan, state_slots(setting.optimizer()),
                            {.parameter_dtype = dtype, .shard = setting.parallel.shard});
      for (const auto& mine : bytes) EXPECT_EQ(mine, budget.state_bytes);
      EXPECT_LT(budget.state_bytes[2], budget.state_bytes[1]);
    }
}

TEST(MatrixWork, CountsBytesBetweenHosts) {
  OptimizerConfig config;
  config.kind = Kind::muon;
  const layout::Plan plan(matrix_table(), {4, 700, layout::Padding::aligned});
  const auto work = matrix_work(plan, config, true);
  EXPECT_EQ(matrix_bytes_between(comm::Hosts::in_blocks(4, 1), plan, config), 0);
  // With one rank per host, the host that sends most is the rank that sends most.
  EXPECT_EQ(matrix_bytes_between(comm::Hosts::in_blocks(4, 4), plan, config), work->sent_bytes);
  std::int64_t crosses = 0;  // both hosts send the same: one to the owner, the other back
  for (std::size_t p = 0; p < plan.parameters().size(); ++p)
    for (const auto& one : work->owners.pieces(plan, static_cast<ParameterIndex>(p)))
      crosses += one.rank / 2 != one.owner / 2 ? one.piece.elements : 0;
  EXPECT_GT(crosses, 0);
  EXPECT_EQ(matrix_bytes_between(comm::Hosts::in_blocks(4, 2), plan, config), 4 * crosses);
}

TEST(MatrixWork, AgreesWithNumbersComputedByHand) {
  OptimizerConfig config;
  const layout::Plan two(matrix_table(), {2, 700, layout::Padding::aligned});
  EXPECT_FALSE(matrix_work(two, config, true).has_value());
  config.kind = Kind::muon;
  const auto alone =
      matrix_work(layout::Plan(matrix_table(), {1, 700, layout::Padding::aligned}), config, true);
  ASSERT_TRUE(alone);
  EXPECT_EQ(alone->matrices, 7);
  EXPECT_FALSE(alone->distributed);
  EXPECT_EQ(alone->owned_elements, 0);
  EXPECT_EQ(alone->sent_bytes, 0);
  EXPECT_EQ(alone->busiest_flops, alone->flops);
  // 5 steps of 4 max min^2 + 2 min^3: 14 x 20 twice, 13 x 20, 37 x 20 twice, 1 x 65, 24 x 24.
  const auto of = [](double least, double most) {
    return 5 * least * least * (4 * most + 2 * least);
  };
  const double qkv = 2 * of(14, 20) + of(13, 20), square = of(24, 24), mlp = of(20, 37);
  EXPECT_EQ(alone->flops, qkv + 2 * mlp + of(1, 65) + square);
  // The largest: X of 37 x 20, padded to 752 elements, and two matrices of 400.
  EXPECT_EQ(alone->scratch_bytes, 4 * std::max<std::int64_t>(752 + 2 * 400, 3 * 576));
  config.muon.product_dtype = FloatDType::bf16;  // two copies of X of half the size
  EXPECT_EQ(
      matrix_work(layout::Plan(matrix_table(), {1, 700, layout::Padding::aligned}), config, true)
          ->scratch_bytes,
      2 * std::max<std::int64_t>(2 * 752 + 2 * 400, 4 * 576));
  config.muon.product_dtype = FloatDType::fp32;

  const auto sharded = matrix_work(two, config, true);
  // In decreasing order of cost, each to the rank with less work: square, fc, proj, qkv, row.
  double load[2] = {square, mlp + mlp};
  load[0] += qkv;
  load[load[0] < load[1] ? 0 : 1] += of(1, 65);
  EXPECT_EQ(sharded->busiest_flops, std::max(load[0], load[1]));
  EXPECT_TRUE(sharded->distributed);
  EXPECT_EQ(sharded->bytes(), 4 * sharded->owned_elements + sharded->scratch_bytes);
  // Rank 1 has fc and proj, 740 elements each, padded to 752; rank 0 has qkv (820, padded to 832),
  // square and row.
  EXPECT_EQ(sharded->owned_elements, std::max<std::int64_t>(832 + 576 + 80, 2 * 752));
  EXPECT_EQ(matrix_work(two, config, false)->owned_elements, 0);
}

}  // namespace
}  // namespace trireme::optim
