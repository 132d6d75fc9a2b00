// SPDX-License-Identifier: Apache-2.0
#include "plan/step.hpp"

#include <string>

#include <gtest/gtest.h>

#include "base/error.hpp"

namespace trireme::plan {
namespace {

/// Layers of 128 elements, each with its own bucket.
layout::Plan plan_of_layers(int layers) {
  std::vector<layout::Parameter> table;
  for (int layer = 0; layer < layers; ++layer)
    table.push_back({.name = std::to_string(layer), .shape = {128}, .group = layer});
  return {table, {.ranks = 2, .bucket_elements = 1}};
}

/// Two buckets in a step of one micro-step of 9 s: forward reads the second bucket at 0 and the
/// first at 1.5; backward completes the first at 6 and the second at 9.
StepModel two_buckets() {
  static const layout::Plan plan = plan_of_layers(2);
  StepModel model;
  model.plan = &plan;
  model.micro_step_s = model.reducing_micro_step_s = 9;
  model.buckets = {{.reduce_s = 2, .gather_s = 1, .ready = 6.0 / 9, .update_s = 0.5},
                   {.reduce_s = 2, .gather_s = 1, .ready = 1, .update_s = 0.5}};
  model.reads = {0, 1.5 / 9};
  return model;
}

/// Four layers in a step of one micro-step of 12 s: forward reads one each second, backward two
/// seconds each from 4 s on.
StepModel four_layers() {
  static const layout::Plan plan = plan_of_layers(4);
  StepModel model;
  model.plan = &plan;
  model.micro_step_s = model.reducing_micro_step_s = 12;
  model.reads = {0, 1.0 / 12, 2.0 / 12, 3.0 / 12, 0.5, 4.0 / 6};
  for (int b = 0; b < 4; ++b)
    model.buckets.push_back({.reduce_s = 1,
                             .gather_s = 0.5,
                             .reduce_bytes = 3,
                             .gather_bytes = 5,
                             .written = (4 + 2.0 * b) / 12,
                             .ready = (6 + 2.0 * b) / 12});
  return model;
}

double step_s(const StepModel& model) {
  return predict_step(model).step_s;
}

/// 9 s of micro-step, in which the first reduction is hidden; 2 s for the second; 0.5 + 0.5 s of
/// updates, beside which half of the second bucket's gather is done. Of the gathers 0.5 + 1 s are
/// left: 0.5 s are waited for at once, the other at 1.5 s is over.
TEST(Step, PlaysTheEnginesOrder) {
  const StepPrediction step = predict_step(two_buckets());
  EXPECT_DOUBLE_EQ(step.step_s, 9 + 2 + 1 + 0.5);
  EXPECT_DOUBLE_EQ(step.exposed_s, 2.5);
  EXPECT_DOUBLE_EQ(step.compute_s, 10);
  EXPECT_DOUBLE_EQ(step.communication_s, 6);
  EXPECT_DOUBLE_EQ(step.least_s(), 10);
}

TEST(Step, WithoutOverlapIsTheSum) {
  StepModel model = two_buckets();
  model.overlap_gradients = model.overlap_parameters = false;
  model.sums_s = 0.25;
  model.control_s = 0.5;
  const StepPrediction step = predict_step(model);
  EXPECT_DOUBLE_EQ(step.step_s, step.compute_s + step.communication_s);
  EXPECT_DOUBLE_EQ(step.exposed_s, step.communication_s);
}

TEST(Step, WithoutCommunicationIsCompute) {
  StepModel model = two_buckets();
  for (BucketCost& bucket : model.buckets) bucket.reduce_s = bucket.gather_s = 0;
  model.rest_s = 1;
  model.matrices_s = 2;
  model.micro_steps = 4;
  model.micro_step_s = 8;
  const StepPrediction step = predict_step(model);
  EXPECT_DOUBLE_EQ(step.step_s, 1 + 3 * 8 + 9 + 2 + 1);
  EXPECT_DOUBLE_EQ(step.step_s, step.compute_s);
  EXPECT_EQ(step.exposed_s, 0);
}

/// Gathers before the matrices overlap with their time; gathers after them do not.
TEST(Step, MatricesHideTheGathersBeforeThem) {
  StepModel model = two_buckets();
  for (BucketCost& bucket : model.buckets) bucket.reduce_s = bucket.gather_s = 0;
  model.matrices_s = 3;
  model.buckets[1].gather_s = 2;  // the first to be updated, and needed at once
  model.matrices_before = 1;
  const StepPrediction behind = predict_step(model);
  EXPECT_GT(behind.exposed_s, 0);
  model.matrices_before = 0;
  const StepPrediction beside = predict_step(model);
  EXPECT_DOUBLE_EQ(beside.exposed_s, 0);
  EXPECT_DOUBLE_EQ(beside.step_s, beside.compute_s);
  EXPECT_DOUBLE_EQ(beside.compute_s, behind.compute_s);
}

/// A bucket that is ready early waits for the one before it in layout order.
TEST(Step, ReducesInLayoutOrder) {
  StepModel model = two_buckets();
  std::swap(model.buckets[0].ready, model.buckets[1].ready);
  EXPECT_DOUBLE_EQ(step_s(model), 9 + 4 + 1 + 0.5);
}

/// One reduction of both buckets per micro-step: the second ends after the micro-step.
TEST(Step, ReducesInEveryMicroStepWhereAsked) {
  StepModel model = two_buckets();
  model.micro_steps = 3;
  const double once = step_s(model);
  model.reduces_each = true;
  const StepPrediction step = predict_step(model);
  EXPECT_DOUBLE_EQ(step.step_s, once + 2 * 2);
  EXPECT_DOUBLE_EQ(step.communication_s, 3 * 4 + 2);
}

TEST(Step, NeverTakesLessThanComputeNorLessWithSlowerLinks) {
  double before = 0;
  for (double factor = 0; factor < 20; factor += 0.5) {
    StepModel model = two_buckets();
    model.sharing = {0.3, 1.2};
    for (BucketCost& bucket : model.buckets) {
      bucket.reduce_s *= factor;
      bucket.gather_s *= factor;
    }
    const StepPrediction step = predict_step(model);
    EXPECT_GE(step.step_s, step.compute_s);
    EXPECT_GE(step.step_s, before);
    EXPECT_LE(step.step_s, 1.2 * (step.compute_s + step.communication_s) * (1 + 1e-12));
    before = step.step_s;
  }
}

TEST(Step, IsAsLongAsCommunicationWhereThatIsMost) {
  StepModel model = two_buckets();
  for (BucketCost& bucket : model.buckets) bucket.reduce_s = bucket.gather_s = 1000;
  const StepPrediction step = predict_step(model);
  EXPECT_GE(step.step_s, step.least_s());
  EXPECT_LE(step.step_s, step.communication_s + step.compute_s);
}

/// A tenth of 10 s of compute; the step's time is already that of the slowest rank.
TEST(Step, CountsTheWaitForTheSlowestRankAsExposed) {
  StepModel model = two_buckets();
  model.waiting_share = 0.1;
  EXPECT_DOUBLE_EQ(predict_step(model).exposed_s, 2.5 + 1);
  EXPECT_DOUBLE_EQ(step_s(model), 12.5);
  for (BucketCost& bucket : model.buckets) bucket.reduce_s = bucket.gather_s = 0;
  EXPECT_EQ(predict_step(model).exposed_s, 0);
}

/// A collective runs beside compute from 6 to 8 s, and beside the second update for 0.5 s; the first
/// gather's other half and the second one are beside 1 s of forward.
TEST(Step, CountsTheUnevenPaceBesideCollectivesAsExposed) {
  StepModel model = two_buckets();
  model.sharing.waiting_during = 0.1;
  EXPECT_NEAR(predict_step(model).exposed_s, 2.5 + 0.1 * (2 + 0.5 + 1), 1e-9);
  EXPECT_DOUBLE_EQ(step_s(model), 12.5);
}

TEST(Step, NeedsAMicroStep) {
  StepModel model = two_buckets();
  model.micro_steps = 0;
  EXPECT_THROW(predict_step(model), ContractError);
  model.micro_steps = 1;
  model.shares_slots = true;  // but reduced once
  EXPECT_THROW(predict_step(model), ContractError);
  model.shares_slots = false;
  model.reads.pop_back();
  EXPECT_THROW(predict_step(model), ContractError);
}

/// Nothing is gathered ahead: compute waits for each reading's gather, 4 in forward and 2 in
/// backward. The latter come after the reduction of the layer before, since there is one queue. At
/// last it waits for the last reduction.
TEST(Step, WaitsForEachLayerThatIsGatheredWhenItIsRead) {
  StepModel model = four_layers();
  model.layerwise = layout::GatherOptions{.prefetch = 0};
  model.reduces_each = model.shares_slots = true;
  const StepPrediction step = predict_step(model);
  EXPECT_DOUBLE_EQ(step.step_s, 12 + 4 * 0.5 + 2 * (1 + 0.5) + 1);
  EXPECT_DOUBLE_EQ(step.exposed_s, 6);
  EXPECT_DOUBLE_EQ(step.communication_s, 4 + 6 * 0.5);
  EXPECT_EQ(step.sent_bytes, 4 * 3 + 6 * 5);
}

/// One bucket ahead in forward is there in time, as is one in backward, but for the first two of a
/// step, which nothing hides: these follow the last reduction.
TEST(Step, HidesTheGathersThatArePrefetched) {
  StepModel model = four_layers();
  model.layerwise = layout::GatherOptions{.prefetch = 1};
  model.reduces_each = model.shares_slots = true;
  const StepPrediction step = predict_step(model);
  EXPECT_DOUBLE_EQ(step.step_s, 12 + 1 + 0.5);
  EXPECT_DOUBLE_EQ(step.communication_s, 4 + 5 * 0.5);
  model.overlap_parameters = false;
  EXPECT_DOUBLE_EQ(step_s(model), 12 + 1 + 4 * 0.5 + (1 + 0.5)) << "one is after a reduction";
}

TEST(Step, WithoutReshardingEachBucketIsGatheredOnceForAllMicroSteps) {
  StepModel model = four_layers();
  model.reduces_each = model.shares_slots = true;
  model.micro_steps = 3;
  model.layerwise = layout::GatherOptions{.prefetch = 1, .reshard_after_forward = false};
  EXPECT_DOUBLE_EQ(predict_step(model).communication_s, 3 * 4 + 4 * 0.5);
  model.layerwise->reshard_after_forward = true;
  EXPECT_GT(predict_step(model).communication_s, 3 * 4 + 3 * 4 * 0.5);
}

/// Three slots: the fourth bucket is written at 10 s, but the first, whose reduction takes 6 s from
/// 6 s on, occupies its slot until 12 s. Without slots compute continues.
TEST(Step, WaitsForTheSlotOfABucketThatIsReduced) {
  StepModel model = four_layers();
  for (BucketCost& bucket : model.buckets) bucket.gather_s = 0;
  model.buckets[0].reduce_s = 6;
  model.reduces_each = true;
  const double free = step_s(model);
  EXPECT_DOUBLE_EQ(free, 12 + 3);
  model.shares_slots = true;
  const StepPrediction step = predict_step(model);
  EXPECT_DOUBLE_EQ(step.exposed_s, 2 + 1);
  EXPECT_DOUBLE_EQ(step.step_s, 12 + 2 + 1);
}

/// For every kind of sharding: without a network the step is compute only. A faster network never
/// makes it longer, nor shorter than the larger of compute and communication.
TEST(Step, GrowsWithTheNetworkInEveryWayToShard) {
  for (const bool reshard : {false, true})
    for (const bool overlap : {false, true})
      for (const std::int64_t prefetch : {0, 1, 2})
        for (const std::int64_t micro_steps : {1, 3}) {
          double before = 0;
          for (double factor = 0; factor < 30; factor += 0.75) {
            StepModel model = four_layers();
            model.layerwise = layout::GatherOptions{prefetch, reshard};
            model.overlap_gradients = model.overlap_parameters = overlap;
            model.reduces_each = model.shares_slots = true;
            model.micro_steps = micro_steps;
            for (BucketCost& bucket : model.buckets) {
              bucket.reduce_s *= factor;
              bucket.gather_s *= factor;
            }
            model.sums_s = 0.25 * factor;
            model.control_s = 0.5 * factor;
            const StepPrediction step = predict_step(model);
            if (factor == 0) {
              EXPECT_DOUBLE_EQ(step.step_s, step.compute_s);
              EXPECT_EQ(step.exposed_s, 0);
            }
            EXPECT_GE(step.step_s, step.least_s() * (1 - 1e-12));
            EXPECT_GE(step.step_s, before * (1 - 1e-12));
            EXPECT_LE(step.step_s, (step.compute_s + step.communication_s) * (1 + 1e-12));
            EXPECT_NEAR(step.step_s, step.compute_s + step.exposed_s, 1e-9 * step.step_s);
            before = step.step_s;
          }
        }
}

}  // namespace
}  // namespace trireme::plan
