// SPDX-License-Identifier: Apache-2.0
// The engine's times of its collectives: their order and step, and that none is missing.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "device/cpu/cpu_stream.hpp"
#include "device/recorder.hpp"

#include "reduce/engine.hpp"
#include "reduce/steps.hpp"
#include "reduce/thread_ranks.hpp"

namespace trireme::reduce {
namespace {

using trireme::testing::run_ranks;
using trireme::testing::Setting;
using trireme::testing::Steps;
using trireme::testing::table;
using trireme::testing::ThreadRank;

layout::Plan two_ranks_plan(std::int64_t bucket_elements = 350) {
  return {table(), {2, bucket_elements, layout::Padding::aligned}};
}

TEST(Times, AgreeWithTheOrderOfEventsAndTheExposedTime) {
  run_ranks(2, [](ThreadRank& rank) {
    for (int bits = 0; bits < 4; ++bits) {
      Setting setting;
      setting.overlap_gradients = (bits & 1) != 0;
      setting.overlap_parameters = (bits & 2) != 0;
      const layout::Plan plan = two_ranks_plan();
      Engine engine(plan, DType::f32, setting.config(), rank.communicator, *rank.device,
                    *rank.compute);
      Steps steps(engine, *rank.device, *rank.compute);
      for (int step = 0; step < 3; ++step) {
        steps.run(step);
        double exposed = 0, previous_end = 0;
        const StepTimes told = engine.times(engine.steps_begun());
        ASSERT_EQ(told.reductions.size(), plan.buckets().size());
        for (const ReductionTimes& times : told.reductions) {
          ASSERT_GT(times.ready, 0.0);
          ASSERT_LE(times.ready, times.start);
          ASSERT_LE(times.start, times.end);
          ASSERT_LE(previous_end, times.start);
          previous_end = times.end;
          ASSERT_GE(times.waited, 0.0);
          // Without overlap compute waits from the start of the collective to its end.
          if (!setting.overlap_gradients) {
            ASSERT_GE(times.waited, times.end - times.start);
          }
          exposed += times.waited;
        }
        const bool gathered = step > 0 || !setting.overlap_parameters;
        ASSERT_EQ(told.gathers.size(), gathered ? plan.buckets().size() : 0);
        for (const GatherTimes& times : told.gathers) {
          ASSERT_GT(times.ready, 0.0);
          ASSERT_LE(times.ready, times.start);
          ASSERT_LE(times.start, times.end);
          if (!setting.overlap_parameters) {
            ASSERT_GE(times.waited, times.end - times.start);
          }
          exposed += times.waited;
        }
        ASSERT_DOUBLE_EQ(told.exposed_s, exposed);
      }
      engine.wait_for_parameters();
      // The next step need not wait for parameters: the wait above is in `gathers`, but is not
      // exposed time.
      steps.run(3);
      double exposed = 0;
      const StepTimes last = engine.times(engine.steps_begun());
      ASSERT_EQ(last.reductions.size(), plan.buckets().size());
      ASSERT_EQ(last.gathers.size(), plan.buckets().size());
      for (const ReductionTimes& times : last.reductions) exposed += times.waited;
      for (const GatherTimes& times : last.gathers)
        exposed += setting.overlap_parameters ? 0 : times.waited;
      ASSERT_DOUBLE_EQ(last.exposed_s, exposed);
      engine.wait_for_parameters();
      for (const bool told : {!setting.overlap_parameters, true})
        ASSERT_EQ(engine.take_last_gathers().size(), told ? 0 : plan.buckets().size());
      rank.world.barrier();
    }
  });
}

/// If every micro-step is reduced and parameters are gathered twice, each collective has its own
/// times.
TEST(Times, AreReportedForEveryCollectiveOfAStep) {
  run_ranks(2, [](ThreadRank& rank) {
    const Setting setting{
        .shard = layout::Shard::parameters, .bucket_elements = 1, .micro_steps = 3};
    const layout::Plan plan = two_ranks_plan(1);
    Engine engine(plan, DType::f32, setting.config(), rank.communicator, *rank.device,
                  *rank.compute);
    Steps steps(engine, *rank.device, *rank.compute, setting);
    for (int step = 0; step < 3; ++step) {
      steps.run(step);
      const StepTimes told = engine.times(engine.steps_begun());
      ASSERT_EQ(told.reductions.size(), 3 * plan.buckets().size());
      for (std::size_t i = 0; i < told.reductions.size(); ++i) {
        ASSERT_EQ(at(told.reductions[i].bucket), i / 3);
        ASSERT_EQ(told.reductions[i].round, static_cast<std::int64_t>(i % 3));
        if (i % 3 != 0) {
          ASSERT_GE(told.reductions[i].ready, told.reductions[i - 1].end);
        }
      }
      ASSERT_GT(told.gathers.size(), 2 * plan.buckets().size()) << "forward, and part of backward";
      ASSERT_LE(told.gathers.size(), 6 * plan.buckets().size());
      for (std::size_t i = 1; i < told.gathers.size(); ++i)
        if (told.gathers[i].bucket == told.gathers[i - 1].bucket) {
          ASSERT_GE(told.gathers[i].start, told.gathers[i - 1].end);
        }
    }
    engine.wait_for_parameters();
    rank.world.barrier();
  });
}

TEST(Times, OfThePreviousStepAreKept) {
  run_ranks(2, [](ThreadRank& rank) {
    for (const bool overlap : {false, true}) {
      Setting setting;
      setting.overlap_gradients = setting.overlap_parameters = overlap;
      const layout::Plan plan = two_ranks_plan();
      Engine engine(plan, DType::f32, setting.config(), rank.communicator, *rank.device,
                    *rank.compute);
      Steps steps(engine, *rank.device, *rank.compute);
      std::vector<double> begins(1);
      for (int step = 1; step <= 4; ++step) {
        begins.push_back(device::steady_seconds());
        steps.run(step);
        if (step == 1)
          continue;
        const std::int64_t before = engine.steps_begun() - 1;
        const StepTimes told = engine.times(before);
        const auto at = static_cast<std::size_t>(before);
        ASSERT_EQ(told.reductions.size(), plan.buckets().size());
        for (const ReductionTimes& times : told.reductions) {
          ASSERT_GE(times.ready, begins[at]);
          ASSERT_LE(times.end, begins[at + 1]);
        }
        ASSERT_EQ(told.gathers.size(), !overlap || before > 1 ? plan.buckets().size() : 0);
        for (const GatherTimes& times : told.gathers)
          ASSERT_LE(times.wait_begin + times.waited, begins[at + 1]);
        ASSERT_THROW(static_cast<void>(engine.times(before - 1)), ContractError);
      }
      engine.wait_for_parameters();
      rank.world.barrier();
    }
  });
}

}  // namespace
}  // namespace trireme::reduce
