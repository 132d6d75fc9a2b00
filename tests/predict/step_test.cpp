// SPDX-License-Identifier: Apache-2.0
#include "predict/step.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"

namespace trireme::predict {
namespace {

/// Two buckets in a step of one micro-step of 9 s: forward reads the second bucket at 0 and the
/// first at 1.5; backward completes the first at 6 and the second at 9.
StepModel two_buckets() {
  StepModel model;
  model.micro_step_s = model.reducing_micro_step_s = 9;
  model.buckets = {{.reduce_s = 2, .gather_s = 1, .ready_s = 6, .needed_s = 1.5, .update_s = 0.5},
                   {.reduce_s = 2, .gather_s = 1, .ready_s = 9, .needed_s = 0, .update_s = 0.5}};
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

/// What is gathered before the matrices has their time; what comes after them has not.
TEST(Step, MatricesHideTheGathersBeforeThem) {
  StepModel model = two_buckets();
  for (BucketCost& bucket : model.buckets) bucket.reduce_s = bucket.gather_s = 0;
  model.matrices_s = 3;
  model.buckets[1].gather_s = 2;  // the first to be updated, and needed at once
  model.buckets[1].needed_s = 0;
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
  std::swap(model.buckets[0].ready_s, model.buckets[1].ready_s);
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

/// A tenth of 10 s of compute; the step is the slowest rank's already.
TEST(Step, CountsTheWaitForTheSlowestRankAsExposed) {
  StepModel model = two_buckets();
  model.waiting_share = 0.1;
  EXPECT_DOUBLE_EQ(predict_step(model).exposed_s, 2.5 + 1);
  EXPECT_DOUBLE_EQ(step_s(model), 12.5);
  for (BucketCost& bucket : model.buckets) bucket.reduce_s = bucket.gather_s = 0;
  EXPECT_EQ(predict_step(model).exposed_s, 0);
}

TEST(Step, NeedsAMicroStep) {
  StepModel model = two_buckets();
  model.micro_steps = 0;
  EXPECT_THROW(predict_step(model), ContractError);
}

}  // namespace
}  // namespace trireme::predict
