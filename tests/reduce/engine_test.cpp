// SPDX-License-Identifier: Apache-2.0
// The engine on one to five ranks (threads): its results, the order of its collectives, the misuse
// that it reports, and that no switch changes a bit.
#include "reduce/engine.hpp"

#include <array>
#include <atomic>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "layout/budget.hpp"
#include "layout/residency.hpp"

#include "reduce/steps.hpp"
#include "reduce/thread_ranks.hpp"

namespace trireme::reduce {
namespace {

using trireme::testing::Hub;
using trireme::testing::run_ranks;
using trireme::testing::Setting;
using trireme::testing::settings_of_every_switch;
using trireme::testing::Steps;
using trireme::testing::table;
using trireme::testing::ThreadRank;
using trireme::testing::Tied;
using trireme::testing::train_plainly;

layout::Options options(int ranks, std::int64_t bucket_elements = 350) {
  return {ranks, bucket_elements, layout::Padding::aligned};
}

/// Parameters after `steps` steps. Checks that they are the same on every rank.
std::vector<float> train(int ranks, const Setting& setting, int steps) {
  std::vector<std::vector<float>> results(static_cast<std::size_t>(ranks));
  run_ranks(ranks, [&](ThreadRank& rank) {
    results[static_cast<std::size_t>(rank.world.rank())] =
        trireme::testing::train(setting, steps, rank.communicator, *rank.device, *rank.compute);
  });
  for (const auto& other : results) EXPECT_EQ(other, results[0]);
  return results[0];
}

class EngineAtRanks : public ::testing::TestWithParam<int> {};

TEST_P(EngineAtRanks, TrainsAsAPlainLoopWithEverySwitch) {
  const int ranks = GetParam(), steps = 4;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const auto expected = train_plainly({.dtype = dtype}, steps, ranks);
    for (Setting setting : settings_of_every_switch()) {
      setting.dtype = dtype;
      if (setting.shard == layout::Shard::none && setting.overlap_parameters)
        setting.padding = layout::Padding::none;
      ASSERT_EQ(train(ranks, setting, steps), expected) << setting.text() << ", " << name(dtype);
    }
  }
}

TEST_P(EngineAtRanks, TrainsAsAPlainLoopWithTheTiedWeightAnywhere) {
  const int ranks = GetParam(), steps = 4;
  for (const Tied tied : {Tied::last, Tied::alone}) {
    const auto expected = train_plainly({.tied = tied}, steps, ranks);
    for (Setting setting : settings_of_every_switch()) {
      setting.tied = tied;
      ASSERT_EQ(train(ranks, setting, steps), expected)
          << setting.text() << (tied == Tied::last ? ", last" : ", alone");
    }
  }
}

TEST_P(EngineAtRanks, RoundsGradientsThatAreSentAsBf16) {
  const int ranks = GetParam(), steps = 3;
  const Setting rounding{.gradient_dtype = GradientDType::bf16};
  const auto expected = train_plainly(rounding, steps, ranks);
  ASSERT_EQ(ranks == 1, expected == train_plainly({}, steps, ranks));
  for (Setting setting : settings_of_every_switch()) {
    setting.gradient_dtype = GradientDType::bf16;
    ASSERT_EQ(train(ranks, setting, steps), expected) << setting.text();
  }
}

TEST_P(EngineAtRanks, AddsUpMicroStepsThatAreReducedSeparately) {
  const int ranks = GetParam(), steps = 2;
  for (const GradientDType wire : {GradientDType::fp32, GradientDType::bf16}) {
    const Setting plain{.gradient_dtype = wire, .micro_steps = 3};
    const auto expected = train_plainly(plain, steps, ranks);
    for (Setting setting : settings_of_every_switch()) {
      setting.gradient_dtype = wire;
      setting.micro_steps = 3;
      if (!layout::shards_gradients(setting.shard))
        setting.reduce_every = ReduceEvery::micro_step;
      ASSERT_EQ(train(ranks, setting, steps), expected) << setting.text() << ", " << word(wire);
    }
  }
}

TEST_P(EngineAtRanks, EnqueuesTheSameCollectivesInTheSameOrderOnAllRanks) {
  const int ranks = GetParam();
  Hub hub(ranks);
  hub.keep_calls(100);
  run_ranks(hub, [&](ThreadRank& rank) {
    const layout::Plan plan(table(), options(ranks));
    Engine engine(plan, DType::f32, {}, rank.communicator, *rank.device, *rank.compute);
    Steps(engine, *rank.device, *rank.compute).run(0);
    engine.wait_for_parameters();
  });
  for (int rank = 0; rank < ranks; ++rank)
    EXPECT_THAT(hub.calls(rank),
                ::testing::ElementsAre("reduce_scatter 0", "reduce_scatter 1", "reduce_scatter 2",
                                       "all_gather 2", "all_gather 1", "all_gather 0"));
}

TEST_P(EngineAtRanks, GathersLayersAheadInForwardAndBackwardInTheSameOrder) {
  const int ranks = GetParam();
  const Setting setting{.shard = layout::Shard::parameters, .bucket_elements = 1};
  Hub hub(ranks);
  hub.keep_calls(100);
  run_ranks(hub, [&](ThreadRank& rank) {
    const layout::Plan plan(table(), options(ranks, 1));  // e, d | c, b | a, wte (separate buckets)
    Engine engine(plan, DType::f32, setting.config(), rank.communicator, *rank.device,
                  *rank.compute);
    engine.hold_collectives(rank.world.rank() == 0);
    Steps(engine, *rank.device, *rank.compute, setting).run(0);
    engine.wait_for_parameters();
  });
  // Three slots: after forward they hold buckets 2, 1 and 0, which backward reads first.
  for (int rank = 0; rank < ranks; ++rank)
    EXPECT_THAT(hub.calls(rank),
                ::testing::ElementsAre(
                    "all_gather 5", "all_gather 4", "all_gather 3", "all_gather 2", "all_gather 1",
                    "all_gather 0", "reduce_scatter 0", "reduce_scatter 1", "all_gather 3",
                    "reduce_scatter 2", "reduce_scatter 3", "all_gather 4", "reduce_scatter 4",
                    "reduce_scatter 5", "all_gather 5", "all_gather 4", "all_gather 3"));
}

TEST_P(EngineAtRanks, GathersLayersAheadOnceInAStepWithoutResharding) {
  const int ranks = GetParam();
  const Setting setting{.shard = layout::Shard::parameters,
                        .bucket_elements = 1,
                        .micro_steps = 2,
                        .reshard_after_forward = false};
  Hub hub(ranks);
  hub.keep_calls(100);
  run_ranks(hub, [&](ThreadRank& rank) {
    const layout::Plan plan(table(), options(ranks, 1));
    Engine engine(plan, DType::f32, setting.config(), rank.communicator, *rank.device,
                  *rank.compute);
    ASSERT_FALSE(engine.parameters_share_slots());
    engine.hold_collectives(rank.world.rank() == 0);
    Steps steps(engine, *rank.device, *rank.compute, setting);
    for (int step = 0; step < 2; ++step) {
      steps.run(step);
      engine.wait_for_parameters();
    }
  });
  const auto collectives = [](const std::string& what, std::vector<int> of) {
    std::vector<std::string> all;
    for (const int bucket : of) all.push_back(what + " " + std::to_string(bucket));
    return all;
  };
  std::vector<std::string> expected;
  const auto expect = [&](const std::vector<std::string>& more) {
    expected.insert(expected.end(), more.begin(), more.end());
  };
  const std::vector<int> forward{5, 4, 3, 2, 1, 0}, backward{0, 1, 2, 3, 4, 5};
  for (int step = 0; step < 2; ++step) {
    if (step == 0)
      expect(collectives("all_gather", forward));
    expect(collectives("reduce_scatter", backward));  // of each micro-step
    expect(collectives("reduce_scatter", backward));
    expect(collectives("all_gather", {5, 4, 3}));  // the first layer, and one ahead
    expect(collectives("all_gather", {2, 1, 0}));  // in wait_for_parameters()
  }
  for (int rank = 0; rank < ranks; ++rank) EXPECT_EQ(hub.calls(rank), expected);
}

TEST_P(EngineAtRanks, ReducesBucketsThatShareSlotsInEveryMicroStepInTheSameOrder) {
  const int ranks = GetParam();
  const Setting setting{.shard = layout::Shard::gradients, .bucket_elements = 1, .micro_steps = 2};
  Hub hub(ranks);
  hub.keep_calls(100);
  run_ranks(hub, [&](ThreadRank& rank) {
    const layout::Plan plan(table(), options(ranks, 1));
    Engine engine(plan, DType::f32, setting.config(), rank.communicator, *rank.device,
                  *rank.compute);
    engine.hold_collectives(rank.world.rank() == 0);
    Steps(engine, *rank.device, *rank.compute, setting).run(0);
    engine.wait_for_parameters();
  });
  std::vector<std::string> expected;
  for (int micro = 0; micro < setting.micro_steps; ++micro)
    for (int bucket = 0; bucket < 6; ++bucket)
      expected.push_back("reduce_scatter " + std::to_string(bucket));
  for (int bucket = 6; bucket-- > 0;) expected.push_back("all_gather " + std::to_string(bucket));
  for (int rank = 0; rank < ranks; ++rank) EXPECT_EQ(hub.calls(rank), expected);
}

TEST_P(EngineAtRanks, KeepsPaddingZero) {
  run_ranks(GetParam(), [](ThreadRank& rank) {
    const layout::Plan plan(table(), options(rank.world.size()));
    Engine engine(plan, DType::f32, {}, rank.communicator, *rank.device, *rank.compute);
    Steps steps(engine, *rank.device, *rank.compute);
    steps.initialize();
    for (int step = 0; step < 3; ++step) steps.run(step);
    engine.wait_for_parameters();
    // Every element of the arena that belongs to no parameter must be zero.
    std::vector<char> inside(static_cast<std::size_t>(plan.flat_elements()), 0);
    std::size_t first = 0;
    for (std::size_t p = 0; p < plan.parameters().size(); ++p) {
      const layout::Placement& place = plan.placement(static_cast<ParameterIndex>(p));
      std::memset(inside.data() + place.begin, 1, static_cast<std::size_t>(place.elements));
      if (place.begin == 0)
        first = p;
    }
    const float* arena = engine.parameter(static_cast<ParameterIndex>(first)).as<float>();
    for (std::size_t i = 0; i < inside.size(); ++i)
      if (inside[i] == 0) {
        ASSERT_EQ(arena[i], 0.0F) << "element " << i;
      }
  });
}

INSTANTIATE_TEST_SUITE_P(, EngineAtRanks, ::testing::Values(1, 2, 3, 5));

class OneRank : public ::testing::Test {
 protected:
  Engine& make(const ParallelConfig& config = {}) {
    engine_ = std::make_unique<Engine>(plan_, DType::f32, config, rank_.communicator, *rank_.device,
                                       *rank_.compute);
    return *engine_;
  }
  Steps steps_of(Engine& engine) { return {engine, *rank_.device, *rank_.compute}; }

  Hub hub_{1};
  ThreadRank rank_{hub_, 0};
  layout::Plan plan_{table(), options(1)};
  std::unique_ptr<Engine> engine_;
};

template <class F>
std::string message_of(F call) {
  try {
    call();
  } catch (const ContractError& error) {
    return error.what();
  }
  return "no ContractError";
}

TEST_F(OneRank, HoldsABucketBackUntilItsPredecessorsAreReady) {
  hub_.keep_calls(100);
  Engine& engine = make();
  engine.begin_step();
  engine.mark_ready(ParameterIndex{0});  // bucket 2, alone
  EXPECT_THAT(hub_.calls(0), ::testing::IsEmpty());
  for (const int p : {1, 2, 5, 4, 3}) engine.mark_ready(static_cast<ParameterIndex>(p));
  EXPECT_THAT(hub_.calls(0),
              ::testing::ElementsAre("reduce_scatter 0", "reduce_scatter 1", "reduce_scatter 2"));
}

TEST_F(OneRank, NamesGradientsThatWereNeverReady) {
  Engine& engine = make();
  engine.begin_step();
  for (const int p : {5, 4, 3, 2}) engine.mark_ready(static_cast<ParameterIndex>(p));
  EXPECT_THAT(message_of([&] { engine.finish_reduction(); }),
              ::testing::HasSubstr("never reported ready: wte, a"));
}

TEST_F(OneRank, RefusesStepsOutOfOrder) {
  Engine& engine = make();
  const ParameterIndex e{5};
  EXPECT_THAT(message_of([&] { engine.mark_ready(e); }), ::testing::HasSubstr("outside of a step"));
  engine.begin_step();
  EXPECT_THAT(message_of([&] { engine.wait_for_shard(BucketIndex{0}); }),
              ::testing::HasSubstr("bucket 0, which is filling"));
  engine.mark_ready(e);
  EXPECT_THAT(message_of([&] { engine.mark_ready(e); }), ::testing::HasSubstr("e was reported"));
  EXPECT_THAT(message_of([&] { engine.mark_updated(BucketIndex{0}); }),
              ::testing::HasSubstr("updated while filling"));
  for (const int p : {4, 3}) engine.mark_ready(static_cast<ParameterIndex>(p));
  EXPECT_THAT(message_of([&] { engine.begin_step(); }),
              ::testing::HasSubstr("a step begins while bucket 0 is reducing"));
}

TEST_F(OneRank, RefusesAGradientOfParametersThatWereNotWaitedFor) {
  Engine& engine = make();
  steps_of(engine).run(0);
  engine.begin_step();
  for (const int p : {5, 4}) engine.mark_ready(static_cast<ParameterIndex>(p));
  EXPECT_THAT(message_of([&] { engine.mark_ready(ParameterIndex{3}); }),
              ::testing::HasSubstr("compute has not waited for its parameters"));
}

TEST_F(OneRank, RefusesWritesToASlotThatIsInUse) {
  plan_ = layout::Plan(table(), options(1, 1));  // e, d, c, b, a, wte (a bucket each)
  ParallelConfig config;
  config.shard = layout::Shard::gradients;
  Engine& engine = make(config);
  const ParameterIndex wte{0}, a{1}, b{2}, c{3}, d{4}, e{5};
  engine.begin_step();
  EXPECT_THAT(message_of([&] { engine.mark_ready(e); }),
              ::testing::HasSubstr("without before_write()"));
  for (const ParameterIndex begun : {wte, e, d, c}) engine.before_write(begun);
  EXPECT_THAT(message_of([&] { engine.before_write(b); }),
              ::testing::HasSubstr("b is written to memory of bucket 0, which is filling"));
  engine.mark_ready(e);
  engine.before_write(b);
  EXPECT_THAT(message_of([&] { engine.before_write(a); }),
              ::testing::HasSubstr("a is written to memory of bucket 1"));
}

TEST_F(OneRank, ZeroesASlotWhenABucketGetsIt) {
  plan_ = layout::Plan(table(), options(1, 1));
  ParallelConfig config;
  config.shard = layout::Shard::gradients;
  Engine& engine = make(config);
  engine.begin_step();
  for (std::int32_t p = 5; p >= 0; --p) {
    const ParameterIndex parameter{p};
    const View bucket = engine.bucket_gradients(plan_.placement(parameter).bucket);
    std::fill_n(bucket.as<float>(), bucket.elements, 9.0F);
    engine.before_write(parameter);
    EXPECT_EQ(std::count(bucket.as<float>(), bucket.as<float>() + bucket.elements, 0.0F),
              bucket.elements);
    engine.gradient(parameter).as<float>()[0] = 1;
    engine.before_write(parameter);
    EXPECT_EQ(engine.gradient(parameter).as<float>()[0], 1.0F) << "only before the first write";
    engine.mark_ready(parameter);
  }
}

TEST_F(OneRank, RefusesShardsOfGradientsThatAreReducedOncePerStep) {
  ParallelConfig config;
  config.shard = layout::Shard::gradients;
  config.reduce_every = ReduceEvery::step;
  EXPECT_THAT(message_of([&] { make(config); }), ::testing::HasSubstr("reduce_every: step"));
  config.reduce_every = ReduceEvery::automatic;
  config.reduction = comm::Reduction::tree;
  config.logical_shards.value = 1;
  EXPECT_THAT(message_of([&] { make(config); }), ::testing::HasSubstr("reduction: tree"));
}

TEST_F(OneRank, RefusesAPlanForAnotherNumberOfRanks) {
  plan_ = layout::Plan(table(), options(2));
  EXPECT_THAT(message_of([&] { make(); }), ::testing::HasSubstr("plan for 2 ranks"));
}

TEST_F(OneRank, AccumulatesOverMicroStepsAndStartsFromZero) {
  Engine& engine = make();
  for (int step = 0; step < 2; ++step) {
    engine.begin_step();
    engine.wait_for_parameters();
    float* gradient = engine.gradient(ParameterIndex{1}).as<float>();
    EXPECT_EQ(gradient[5], 0.0F);
    gradient[5] += 1;
    gradient[5] += 2;
    for (int p = 5; p >= 0; --p) engine.mark_ready(static_cast<ParameterIndex>(p));
    engine.finish_reduction();
    EXPECT_EQ(gradient[5], 3.0F);
    for (int b = 2; b >= 0; --b) {
      engine.wait_for_shard(static_cast<BucketIndex>(b));
      engine.mark_updated(static_cast<BucketIndex>(b));
    }
  }
}

TEST(Engine, AllocatesExactlyTheBytesOfTheBudget) {
  for (const int ranks : {1, 3})
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const layout::Padding padding : {layout::Padding::aligned, layout::Padding::none})
        for (const GradientDType wire : {GradientDType::fp32, GradientDType::bf16})
          for (const auto& choice : {std::pair{layout::Shard::none, true},
                                     {layout::Shard::optimizer, true},
                                     {layout::Shard::gradients, true},
                                     {layout::Shard::parameters, true},
                                     {layout::Shard::parameters, false}})
            run_ranks(ranks, [&](ThreadRank& rank) {
              const auto [shard, reshards] = choice;
              const layout::Plan plan(table(), {ranks, 1, padding});
              ParallelConfig config;
              config.shard = shard;
              config.reshard_after_forward = reshards;
              config.gradient_dtype = wire;
              layout::BudgetOptions options{.parameter_dtype = dtype,
                                            .shard = shard,
                                            .wire_dtype = dtype_of(wire),
                                            .gathers = config.gather_options()};
              if (config.reduces_micro_steps())
                options.micro_step_reductions = 1;
              const Engine engine(plan, dtype, config, rank.communicator, *rank.device,
                                  *rank.compute);
              const auto budget = layout::budget_of(plan, {}, options);
              ASSERT_EQ(static_cast<std::int64_t>(engine.gradient_bytes()), budget.gradient_bytes);
              ASSERT_EQ(static_cast<std::int64_t>(engine.parameter_bytes()),
                        budget.parameter_bytes);
              // Sent memory is allocated by the communicator, and no other memory is.
              const bool rounds = ranks > 1 && wire != GradientDType::fp32;
              const bool turns = layout::shards_gradients(shard);
              const std::int64_t elements = rounds  ? plan.largest_bucket()
                                            : turns ? layout::Ring(plan).elements()
                                                    : plan.flat_elements();
              const std::size_t on_wire = size_bytes(rounds ? dtype_of(wire) : DType::f32);
              const std::int64_t shards =
                  shard == layout::Shard::parameters && reshards ? plan.owned_elements() : 0;
              ASSERT_EQ(rank.communicator.allocated_bytes(),
                        static_cast<std::size_t>(elements) * on_wire + engine.parameter_bytes() -
                            static_cast<std::size_t>(shards) * size_bytes(dtype));
            });
}

TEST_F(OneRank, ComputesShardsOnceOrEveryStep) {
  Engine& cached = make();
  steps_of(cached).run(0);
  EXPECT_EQ(rank_.communicator.num_lookups(), 6);
  ParallelConfig config;
  config.cached_shards = false;
  Engine& searching = make(config);
  Steps steps = steps_of(searching);
  steps.run(0);
  searching.wait_for_parameters();
  steps.run(1);
  EXPECT_EQ(rank_.communicator.num_lookups(), 6 + 6 + 2 * 6);
}

TEST(Hold, AGatherStartsOnlyWhenComputeWaitsForItOrALaterOne) {
  run_ranks(2, [](ThreadRank& rank) {
    const layout::Plan plan(table(), options(2));
    Engine engine(plan, DType::f32, {}, rank.communicator, *rank.device, *rank.compute);
    Steps steps(engine, *rank.device, *rank.compute);
    steps.initialize();
    const auto foreign = [&](BucketIndex bucket) {
      const std::int64_t shard = plan.bucket(bucket).shard_elements;
      const View part =
          engine.bucket_parameters(bucket).slice((1 - rank.world.rank()) * shard, shard);
      return std::vector<float>(part.as<float>(), part.as<float>() + shard);
    };
    std::vector<std::vector<float>> old;
    for (std::size_t b = 0; b < plan.buckets().size(); ++b)
      old.push_back(foreign(static_cast<BucketIndex>(b)));
    engine.hold_collectives(true);
    steps.run(0);
    engine.hold_collectives(false);  // collectives that were pushed before stay held
    std::vector<char> current(old.size(), 0);
    for (std::size_t p = 0; p < plan.parameters().size(); ++p) {
      const auto parameter = static_cast<ParameterIndex>(p);
      const std::size_t mine = at(plan.placement(parameter).bucket);
      for (std::size_t b = 0; b < old.size(); ++b)
        ASSERT_EQ(foreign(static_cast<BucketIndex>(b)) != old[b], current[b] != 0);
      engine.before_use({&parameter, 1});
      for (std::size_t b = mine; b < old.size(); ++b) current[b] = 1;
    }
  });
}

TEST(Overlap, LetsComputeContinueWhileABucketIsReduced) {
  // Rank 1 reports gradients only after rank 0 has returned from mark_ready() of its first bucket,
  // which it signals through `went_on`. If the reduction of this bucket blocked rank 0, neither
  // rank would continue, and the test would not end.
  std::atomic<bool> went_on{false};
  run_ranks(2, [&](ThreadRank& rank) {
    const layout::Plan plan(table(), options(2));
    Engine engine(plan, DType::f32, {}, rank.communicator, *rank.device, *rank.compute);
    engine.begin_step();
    if (rank.world.rank() == 1)
      went_on.wait(false);
    for (const int p : {5, 4, 3}) engine.mark_ready(static_cast<ParameterIndex>(p));
    if (rank.world.rank() == 0) {
      went_on = true;
      went_on.notify_all();
    }
    for (const int p : {2, 1, 0}) engine.mark_ready(static_cast<ParameterIndex>(p));
    engine.finish_reduction();
    for (int b = 2; b >= 0; --b) {
      engine.wait_for_shard(static_cast<BucketIndex>(b));
      engine.mark_updated(static_cast<BucketIndex>(b));
    }
    engine.wait_for_parameters();
  });
  EXPECT_TRUE(went_on);
}

TEST(Publish, TakesEachShardFromItsOwner) {
  run_ranks(3, [](ThreadRank& rank) {
    const layout::Plan plan(table(), options(3));
    Engine engine(plan, DType::f32, {}, rank.communicator, *rank.device, *rank.compute);
    for (const OwnedShard& shard : engine.owned())
      for (std::int64_t i = 0; i < shard.parameter.elements; ++i)
        shard.parameter.as<float>()[i] = static_cast<float>(rank.world.rank() + 1);
    engine.publish_parameters();
    for (std::size_t p = 0; p < plan.parameters().size(); ++p) {
      const layout::Placement& place = plan.placement(static_cast<ParameterIndex>(p));
      const layout::Bucket& bucket = plan.bucket(place.bucket);
      const float* values = engine.parameter(static_cast<ParameterIndex>(p)).as<float>();
      for (std::int64_t i = 0; i < place.elements; ++i)
        ASSERT_EQ(values[i],
                  static_cast<float>((place.begin - bucket.begin + i) / bucket.shard_elements + 1));
    }
  });
}

}  // namespace
}  // namespace trireme::reduce
