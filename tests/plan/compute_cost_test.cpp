// SPDX-License-Identifier: Apache-2.0
#include "plan/compute_cost.hpp"

#include <gtest/gtest.h>

namespace trireme::plan {
namespace {

Compute row_of(std::int64_t ranks_on_host, double micro_step_s) {
  return {.model = "a",
          .ranks_on_host = ranks_on_host,
          .micro_step_flops = 1e9,
          .micro_step_s = micro_step_s,
          .last_micro_step_s = micro_step_s,
          .ready = {}};
}

Work work_of(std::int64_t ranks_on_host) {
  return {.model = "a", .micro_step_flops = 1e9, .ranks_on_host = ranks_on_host};
}

Machine machine_of(std::vector<Compute> rows, std::int64_t cpus = 8) {
  Machine machine;
  machine.cpus = cpus;
  machine.compute = std::move(rows);
  return machine;
}

/// Registration order: embedding (its own bucket, 64), then a and b (128 elements each), a layer
/// each.
layout::Plan plan_of(int ranks) {
  return {{{.name = "e", .shape = {64}, .own_bucket = true},
           {.name = "a", .shape = {128}, .group = 1},
           {.name = "b", .shape = {128}, .group = 2}},
          {.ranks = ranks, .bucket_elements = 100}};
}

TEST(ComputeCost, TakesTheNearestNumberOfRanksOnAHost) {
  const Machine machine = machine_of({row_of(1, 1.0), row_of(4, 2.0)});
  const auto two = find_compute(machine, work_of(4));
  EXPECT_EQ(two.row->micro_step_s, 2.0);
  EXPECT_TRUE(two.same_work && two.same_ranks);
  EXPECT_FALSE(find_compute(machine, work_of(3)).same_ranks);
  EXPECT_EQ(find_compute(machine, work_of(3)).row->micro_step_s, 2.0);
}

TEST(ComputeCost, SharesCpusAmongMoreRanks) {
  const Machine machine = machine_of({row_of(2, 1.0)}, 2);
  EXPECT_DOUBLE_EQ(find_compute(machine, work_of(1)).crowded, 1);
  EXPECT_DOUBLE_EQ(find_compute(machine, work_of(4)).slower, 2);
}

TEST(ComputeCost, CarriesAnotherModelOverByFlop) {
  const Machine machine = machine_of({row_of(1, 1.0)});
  Work work = work_of(1);
  work.model = "b";
  work.micro_step_flops = 3e9;
  const auto cost = find_compute(machine, work);
  EXPECT_FALSE(cost.same_work);
  EXPECT_DOUBLE_EQ(cost.slower, 3);
  work.precision = Numbers::bf16;
  EXPECT_EQ(find_compute(machine, work).row, nullptr);
}

TEST(ComputeCost, MeasuredSharesGiveWhenBucketsAreReadyAndNeeded) {
  Compute row = row_of(1, 3.0);
  row.ready = {{"b", 0.5}, {"a", 0.75}, {"e", 1.0}};
  row.norm_s_per_element = 1e-3;
  row.update_s_per_element = 1e-2;
  const Machine machine = machine_of({row});
  StepModel model;
  const layout::Plan plan = plan_of(2);
  fill_compute(model, find_compute(machine, work_of(1)), plan, true, 0);
  ASSERT_EQ(model.buckets.size(), 3U);
  EXPECT_DOUBLE_EQ(model.buckets[0].ready, 0.5);
  EXPECT_DOUBLE_EQ(model.buckets[1].ready, 0.75);
  EXPECT_DOUBLE_EQ(model.buckets[2].ready, 1);
  // Backward begins after a third: at 0.5 a quarter of it is over, which mirrors three quarters of
  // forward. It reads a when b is complete.
  ASSERT_EQ(model.reads.size(), 4U);
  EXPECT_NEAR(model.reads[0], 0, 1e-12);
  EXPECT_NEAR(model.reads[1], 0.375 / 3, 1e-12);
  EXPECT_NEAR(model.reads[2], 0.25, 1e-12);
  EXPECT_DOUBLE_EQ(model.reads[3], 0.5);
  // The head writes b and the embedding first.
  EXPECT_DOUBLE_EQ(model.buckets[0].written, 1.0 / 3);
  EXPECT_DOUBLE_EQ(model.buckets[1].written, 0.5);
  EXPECT_DOUBLE_EQ(model.buckets[2].written, 1.0 / 3);
  EXPECT_DOUBLE_EQ(model.buckets[0].norm_s, 0.064);
  EXPECT_DOUBLE_EQ(model.buckets[0].update_s, 0.64);
  fill_compute(model, find_compute(machine, work_of(1)), plan, false, 0);
  EXPECT_DOUBLE_EQ(model.buckets[0].norm_s, 0.064);
  EXPECT_DOUBLE_EQ(model.buckets[0].update_s, 1.28);
}

TEST(ComputeCost, WithoutMeasuredSharesElementsDecide) {
  const Machine machine = machine_of({row_of(1, 3.0)});
  StepModel model;
  const layout::Plan plan = plan_of(1);
  fill_compute(model, find_compute(machine, work_of(1)), plan, true, 0);
  EXPECT_NEAR(model.buckets[0].ready, (1 + 2 * 128.0 / 320) / 3, 1e-12);
  EXPECT_NEAR(model.buckets[1].ready, (1 + 2 * 256.0 / 320) / 3, 1e-12);
  EXPECT_DOUBLE_EQ(model.buckets[2].ready, 1);
}

}  // namespace
}  // namespace trireme::plan
