// SPDX-License-Identifier: Apache-2.0
// Eight leaves of two micro-steps, distributed to 1, 2, 4 and 8 ranks (threads): the sum must be
// the tree that a few lines without engine, buckets and ranks compute.
#include "reduce/leaves.hpp"

#include <cmath>
#include <limits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "base/pairwise.hpp"

#include "comm/payload.hpp"
#include "reduce/engine.hpp"
#include "reduce/thread_ranks.hpp"

namespace trireme::reduce {
namespace {

using ::testing::HasSubstr;
using trireme::testing::Hub;
using trireme::testing::run_ranks;
using trireme::testing::sum_of_pairs;
using trireme::testing::ThreadRank;

constexpr int num_leaves = 8, micro_steps = 2;
const std::vector<layout::Parameter> leaf_table{
    {"a", {7, 30}}, {"b", {300}}, {"c", {65}}, {"d", {1}}, {"e", {129}}};

/// The term that one micro-step of one leaf adds to a gradient.
float term(int step, int leaf, int micro, std::size_t p, std::int64_t i) {
  return comm::testing::gradient(leaf * micro_steps + micro,
                                 static_cast<std::int64_t>(p) * 1000 + i, step);
}

float expected(int step, std::size_t p, std::int64_t i) {
  return sum_of_pairs(0, num_leaves, [&](std::size_t leaf) {
    float sum = 0;
    for (int micro = 0; micro < micro_steps; ++micro)
      sum += term(step, static_cast<int>(leaf), micro, p, i);
    return sum;
  });
}

ParallelConfig tree(std::int64_t leaves = num_leaves) {
  ParallelConfig config;
  config.reduction = comm::Reduction::tree;
  config.logical_shards.value = leaves;
  return config;
}

/// The sum of squares of the gradients of all leaves, as an order-free sum, which the engine must
/// equal.
double squares_of_leaves(int step) {
  ops::OrderFreeSum sum;
  for (int leaf = 0; leaf < num_leaves; ++leaf)
    for (std::size_t p = 0; p < leaf_table.size(); ++p)
      for (std::int64_t i = 0; i < leaf_table[p].elements(); ++i) {
        float gradient = 0;
        for (int micro = 0; micro < micro_steps; ++micro) gradient += term(step, leaf, micro, p, i);
        sum.add(static_cast<double>(gradient) * static_cast<double>(gradient));
      }
  return sum.value();
}

/// Runs all micro-steps of this rank's leaves in one step, and measures the leaves into `squares`,
/// if any.
void accumulate(Engine& engine, int rank, int step, ops::StreamSum* squares = nullptr) {
  const LeafRange mine = leaves_of_term(num_leaves, rank, engine.plan().ranks());
  engine.begin_step(mine.count);
  if (squares != nullptr)
    engine.measure_leaves(*squares);
  engine.wait_for_parameters();
  const auto first = static_cast<int>(mine.begin), end = first + static_cast<int>(mine.count);
  for (int leaf = first; leaf < end; ++leaf) {
    if (leaf > first)
      engine.next_leaf();
    for (int micro = 0; micro < micro_steps; ++micro)
      for (std::size_t p = leaf_table.size(); p-- > 0;) {
        const auto index = static_cast<ParameterIndex>(p);
        const View gradient = engine.gradient(index);
        for (std::int64_t i = 0; i < gradient.elements; ++i)
          gradient.as<float>()[i] += term(step, leaf, micro, p, i);
        if (leaf + 1 == end && micro + 1 == micro_steps)
          engine.mark_ready(index);
      }
  }
  engine.finish_reduction();
}

void expect_tree(const Engine& engine, int rank, int step) {
  const layout::Plan& plan = engine.plan();
  for (const OwnedShard& owned : engine.owned())
    for (const layout::Piece& piece :
         engine.sharded() ? plan.find_pieces(owned.bucket, rank)
                          : plan.find_pieces(owned.bucket, 0, owned.gradient.elements))
      for (std::int64_t i = 0; i < piece.elements; ++i)
        ASSERT_EQ(owned.gradient.as<float>()[piece.shard_begin + i],
                  expected(step, at(piece.parameter), piece.parameter_begin + i))
            << "rank " << rank << " of " << plan.ranks() << ", "
            << plan.parameter(piece.parameter).name << " element " << piece.parameter_begin + i;
}

class LeavesOnRanks : public ::testing::TestWithParam<int> {};

TEST_P(LeavesOnRanks, AddUpToTheSameTree) {
  for (int bits = 0; bits < 8; ++bits) {
    Hub hub(GetParam(), comm::Reduction::tree);
    run_ranks(hub, [&](ThreadRank& rank) {
      ParallelConfig config = tree();
      config.shard = (bits & 1) != 0 ? layout::Shard::optimizer : layout::Shard::none;
      config.overlap_gradients = (bits & 2) != 0;
      config.cached_shards = (bits & 4) != 0;
      const layout::Plan plan(leaf_table, {hub.size(), 200, layout::Padding::aligned});
      Engine engine(plan, DType::f32, config, rank.communicator, *rank.device, *rank.compute);
      for (int step = 0; step < 3; ++step) {
        accumulate(engine, rank.world.rank(), step);
        for (const OwnedShard& owned : engine.owned()) engine.wait_for_shard(owned.bucket);
        expect_tree(engine, rank.world.rank(), step);
        for (const OwnedShard& owned : engine.owned()) engine.mark_updated(owned.bucket);
      }
      engine.wait_for_parameters();
    });
  }
}

TEST_P(LeavesOnRanks, AreMeasuredSeparately) {
  Hub hub(GetParam(), comm::Reduction::tree);
  run_ranks(hub, [&](ThreadRank& rank) {
    const layout::Plan plan(leaf_table, {hub.size(), 200, layout::Padding::aligned});
    Engine engine(plan, DType::f32, tree(), rank.communicator, *rank.device, *rank.compute);
    ops::StreamSum squares(*rank.device);
    for (int step = 0; step < 3; ++step) {
      squares.clear(*rank.compute);
      // The middle step is not measured: measure_leaves() is valid for one step only.
      accumulate(engine, rank.world.rank(), step, step == 1 ? nullptr : &squares);
      for (const OwnedShard& owned : engine.owned()) engine.wait_for_shard(owned.bucket);
      expect_tree(engine, rank.world.rank(), step);
      for (const OwnedShard& owned : engine.owned()) engine.mark_updated(owned.bucket);
      squares.fetch(*rank.compute);
      rank.compute->synchronize();
      rank.world.sum(squares.fetched().words());
      EXPECT_EQ(squares.fetched().value(), step == 1 ? 0 : squares_of_leaves(step))
          << rank.world.rank() << " of " << hub.size() << ", step " << step;
    }
    engine.wait_for_parameters();
  });
}

INSTANTIATE_TEST_SUITE_P(, LeavesOnRanks, ::testing::Range(1, 9));

TEST(Leaves, HaveSumsWhoseBitsDependOnTheirNumber) {
  int different = 0;
  for (std::int64_t i = 0; i < 300; ++i) {
    float in_order = 0;
    for (int leaf = 0; leaf < num_leaves; ++leaf)
      for (int micro = 0; micro < micro_steps; ++micro) in_order += term(0, leaf, micro, 1, i);
    different += in_order != expected(0, 1, i) ? 1 : 0;
  }
  EXPECT_GT(different, 50) << "the order of additions changes too few sums for these tests";
}

TEST(Leaves, AreCountedFromTheDeck) {
  EXPECT_EQ(most_leaves_of_a_rank({}, 3), 1);
  EXPECT_EQ(most_leaves_of_a_rank(tree(16), 4), 4);
  EXPECT_EQ(most_leaves_of_a_rank(tree(16), 3), 8);
  EXPECT_EQ(most_leaves_of_a_rank(tree(16), 7), 4);
  EXPECT_EQ(num_waiting_sums(1), 0);
  EXPECT_EQ(num_waiting_sums(2), 1);
  EXPECT_EQ(num_waiting_sums(64), 6);
  EXPECT_THROW(most_leaves_of_a_rank(tree(12), 4), ContractError);
  EXPECT_THROW(most_leaves_of_a_rank(tree(4), 8), ContractError);
  ParallelConfig uncounted = tree();
  uncounted.logical_shards.value.reset();
  EXPECT_THROW(most_leaves_of_a_rank(uncounted, 1), ContractError);
}

class LeavesOfOneRank : public ::testing::Test {
 protected:
  Engine& make(const ParallelConfig& config) {
    engine_ = std::make_unique<Engine>(plan_, DType::f32, config, rank_.communicator, *rank_.device,
                                       *rank_.compute);
    return *engine_;
  }
  template <class F>
  static std::string message_of(F call) {
    try {
      call();
    } catch (const ContractError& error) {
      return error.what();
    }
    return "no ContractError";
  }

  Hub hub_{1};
  ThreadRank rank_{hub_, 0};
  layout::Plan plan_{leaf_table, {1, 200, layout::Padding::aligned}};
  std::unique_ptr<Engine> engine_;
};

TEST_F(LeavesOfOneRank, HoldsOneMoreArenaPerLevel) {
  const std::size_t arena = make({}).gradient_bytes();
  EXPECT_EQ(make(tree(1)).gradient_bytes(), arena);
  EXPECT_EQ(make(tree(2)).gradient_bytes(), 2 * arena);
  EXPECT_EQ(make(tree(8)).gradient_bytes(), 4 * arena);
}

TEST_F(LeavesOfOneRank, RefusesLeavesOutOfOrder) {
  Engine& engine = make(tree(2));
  EXPECT_THAT(message_of([&] { engine.next_leaf(); }), HasSubstr("outside of a step"));
  engine.begin_step();
  EXPECT_THAT(message_of([&] { engine.mark_ready(ParameterIndex{4}); }),
              HasSubstr("the gradient of e was reported ready in leaf 0 of a step of 2"));
  engine.next_leaf();
  EXPECT_THAT(message_of([&] { engine.next_leaf(); }), HasSubstr("leaf 1 of 2"));
  engine.mark_ready(ParameterIndex{4});
  EXPECT_THAT(message_of([&] { engine.next_leaf(); }), HasSubstr("reported ready"));
  EXPECT_THAT(message_of([&] { make({}).next_leaf(); }), HasSubstr("leaf 0 of 1"));
}

TEST_F(LeavesOfOneRank, RefusesRoundedPartialSums) {
  ParallelConfig config = tree();
  config.gradient_dtype = GradientDType::bf16;
  EXPECT_THAT(message_of([&] { make(config); }), HasSubstr("fp32, not bf16"));
}

TEST_F(LeavesOfOneRank, FindsANonFiniteGradientOfAnEarlierLeaf) {
  for (std::size_t p = 0; p < leaf_table.size(); ++p) {
    const auto broken = static_cast<ParameterIndex>(p);
    for (const std::int64_t element : {std::int64_t{0}, leaf_table[p].elements() - 1}) {
      Engine& engine = make(tree(4));
      engine.begin_step();
      engine.next_leaf();
      engine.gradient(broken).as<float>()[element] = std::numeric_limits<float>::infinity();
      engine.next_leaf();
      engine.next_leaf();
      for (int q = 4; q >= 0; --q) engine.mark_ready(static_cast<ParameterIndex>(q));
      engine.finish_reduction();
      const auto found = engine.first_not_finite(engine.steps_begun());
      ASSERT_TRUE(found);
      EXPECT_EQ(found->parameter, broken);
      EXPECT_EQ(found->element, element);
    }
  }
}

}  // namespace
}  // namespace trireme::reduce
