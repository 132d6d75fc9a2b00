// SPDX-License-Identifier: Apache-2.0
#include "plan/bucket_traffic.hpp"

#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/error.hpp"

#include "plan/compute_cost.hpp"
#include "plan/links.hpp"

namespace trireme::plan {
namespace {

using comm::Reduction, comm::Transport;

/// Every operation takes a microsecond plus `per_byte` seconds per byte.
Link microsecond_link(Transport transport,
                      std::int64_t ranks,
                      std::int64_t hosts,
                      double per_byte) {
  return priced_link(transport, ranks, hosts, 1e-6, per_byte);
}

Machine linked_machine(std::vector<Link> links) {
  Machine machine;
  machine.cpus = 64;
  machine.links = std::move(links);
  machine.compute = {{.model = "a",
                      .micro_step_flops = 1,
                      .micro_step_s = 1e-3,
                      .last_micro_step_s = 1e-3,
                      .ready = {}}};
  return machine;
}

std::vector<layout::Parameter> table_of(int layers) {
  std::vector<layout::Parameter> table;
  for (int layer = 0; layer < layers; ++layer)
    for (int p = 0; p < 2; ++p)
      table.push_back({.name = std::to_string(layer) + "." + std::to_string(p),
                       .shape = {100 + 50 * layer},
                       .own_bucket = layer == 0 && p == 0,
                       .group = layer});
  return table;
}

StepModel model_of(const Machine& machine, const layout::Plan& plan, const BucketTraffic& traffic) {
  StepModel model;
  fill_compute(model, find_compute(machine, {.model = "a", .micro_step_flops = 1}), plan, true, 0);
  traffic.fill(model);
  return model;
}

TEST(Wires, OfCopiesOnAHostEach) {
  const auto wires =
      wires_of(comm::Hosts::in_blocks(8, 2), 2, Transport::shared_memory, Reduction::sum);
  EXPECT_EQ(wires.inside.ranks, 4);
  EXPECT_EQ(wires.inside.hosts, 1);
  EXPECT_EQ(wires.inside.groups, 1);
  ASSERT_TRUE(wires.across);
  EXPECT_EQ(wires.across->transport, Transport::mpi);
  EXPECT_EQ(wires.across->ranks, 2);
  EXPECT_EQ(wires.across->hosts, 2);
  EXPECT_EQ(wires.across->groups, 4) << "the ranks of a host";
}

TEST(Wires, OfTwoCopiesOnAHost) {
  const auto wires =
      wires_of(comm::Hosts::in_blocks(8, 2), 4, Transport::shared_memory, Reduction::sum);
  EXPECT_EQ(wires.inside.ranks, 2);
  EXPECT_EQ(wires.inside.groups, 2);
  EXPECT_EQ(wires.across->ranks, 4);
  EXPECT_EQ(wires.across->hosts, 2);
  EXPECT_EQ(wires.across->groups, 2);
  const auto ordered =
      wires_of(comm::Hosts::in_blocks(8, 2), 4, Transport::shared_memory, Reduction::ordered);
  EXPECT_EQ(ordered.across->ranks, 8);
  EXPECT_EQ(ordered.across->groups, 1);
  EXPECT_FALSE(wires_of(comm::Hosts::in_blocks(8, 2), 1, Transport::mpi, Reduction::sum).across);
}

/// 2 ns per byte inside hosts, 5 ns across: B bytes with two replicas take 2 B + 5 B / 2.
TEST(BucketTraffic, AddsTheSecondReductionOfCopies) {
  const Machine machine = linked_machine({microsecond_link(Transport::shared_memory, 2, 1, 2e-9),
                                          microsecond_link(Transport::mpi, 2, 2, 5e-9)});
  const layout::Plan plan(table_of(3), {.ranks = 2, .bucket_elements = 1, .replicas = {4, 2}});
  const layout::BudgetOptions options;
  const BucketTraffic traffic(
      machine, plan, options,
      wires_of(comm::Hosts::in_blocks(4, 2), 2, Transport::shared_memory, Reduction::sum));
  EXPECT_EQ(traffic.missing(), "");
  EXPECT_TRUE(traffic.extrapolated()) << "two groups share the wire";
  const StepModel model = model_of(machine, plan, traffic);
  const double bytes = 4.0 * static_cast<double>(plan.buckets()[0].elements);
  EXPECT_NEAR(model.buckets[0].reduce_s, (1e-6 + 2e-9 * bytes) + (1e-6 + 5e-9 * 2 * bytes / 2),
              1e-15);
  EXPECT_NEAR(model.buckets[0].gather_s, 1e-6 + 2e-9 * bytes, 1e-15);
  EXPECT_DOUBLE_EQ(model.sums_s, 2e-5);
  EXPECT_DOUBLE_EQ(model.control_s, 4e-5);
}

TEST(BucketTraffic, NamesTheLinkAcrossCopiesThatIsMissing) {
  const Machine machine = linked_machine({microsecond_link(Transport::shared_memory, 2, 1, 2e-9)});
  const layout::Plan plan(table_of(3), {.ranks = 2, .bucket_elements = 1, .replicas = {4, 2}});
  const BucketTraffic traffic(
      machine, plan, {},
      wires_of(comm::Hosts::in_blocks(4, 2), 2, Transport::shared_memory, Reduction::sum));
  EXPECT_NE(traffic.missing().find("mpi in 2 groups among 2 ranks on 2 hosts"), std::string::npos)
      << traffic.missing();
}

/// A quarter of the bytes takes a quarter of the time. With two ranks on a host, whose terms are
/// not added first, it takes half.
TEST(BucketTraffic, CountsWhatCompressedGradientsSend) {
  for (const auto& [transport, ranks] :
       {std::pair{Transport::mpi, 2}, {Transport::hierarchical, 4}}) {
    const Machine machine = linked_machine({microsecond_link(transport, ranks, 2, 5e-9)});
    const layout::Plan plan(table_of(3), {.ranks = ranks, .bucket_elements = 1});
    layout::BudgetOptions options;
    for (const layout::Bucket& bucket : plan.buckets())
      options.compressed_bytes.push_back(bucket.shard_elements * (ranks - 1));
    const BucketTraffic traffic(
        machine, plan, options,
        wires_of(comm::Hosts::in_blocks(ranks, 2), 1, transport, Reduction::sum));
    const StepModel model = model_of(machine, plan, traffic);
    const auto elements = static_cast<double>(plan.buckets()[0].elements);
    EXPECT_NEAR(model.buckets[0].reduce_s, 1e-6 + 5e-9 * elements * ranks / 2, 1e-15);
    EXPECT_EQ(model.buckets[0].reduce_bytes, options.compressed_bytes[0]);
  }
}

/// Factors are added inside hosts first, so each rank sends as many bytes as a host.
TEST(BucketTraffic, TakesFactorsForASmallerAllReduce) {
  const Machine machine = linked_machine({microsecond_link(Transport::hierarchical, 4, 2, 5e-9)});
  const layout::Plan plan(table_of(3), {.ranks = 4, .bucket_elements = 1});
  layout::BudgetOptions options{.shard = layout::Shard::none, .sums_compressed = true};
  for (const layout::Bucket& bucket : plan.buckets())  // an eighth of the elements
    options.compressed_bytes.push_back(2 * 3 * bucket.elements / 8);
  const BucketTraffic traffic(
      machine, plan, options,
      wires_of(comm::Hosts::in_blocks(4, 2), 1, Transport::hierarchical, Reduction::sum));
  const auto elements = static_cast<double>(plan.buckets()[0].elements);
  EXPECT_NEAR(model_of(machine, plan, traffic).buckets[0].reduce_s, 1e-6 + 5e-9 * elements / 2,
              1e-15);
}

/// For any model, sharding, replicas and micro-steps, the simulated step sends the bytes that the
/// plan counts.
TEST(BucketTraffic, SendsTheBytesOfThePlan) {
  const Machine machine = linked_machine(
      {microsecond_link(Transport::mpi, 2, 2, 1e-9), microsecond_link(Transport::mpi, 2, 1, 1e-9)});
  Machine ordered = machine;
  for (Link& link : ordered.links) link.reduction = Reduction::ordered;
  std::mt19937 random(11);
  const auto below = [&](int end) {
    return std::uniform_int_distribution<int>(0, end - 1)(random);
  };
  for (int round = 0; round < 300; ++round) {
    const int ranks = 2 + below(3), copies = 1 + below(3), micro_steps = 1 + below(4);
    const auto shard = static_cast<layout::Shard>(below(copies > 1 ? 3 : 4) + (copies > 1 ? 1 : 0));
    layout::BudgetOptions options{.parameter_dtype = below(2) == 0 ? DType::f32 : DType::bf16,
                                  .shard = shard,
                                  .wire_dtype = below(2) == 0 ? DType::f32 : DType::bf16};
    if (layout::shards_gradients(shard) || below(2) == 0)
      options.micro_step_reductions = micro_steps;
    options.gathers = {below(4), below(2) == 0};
    options.ordered = below(2) == 0;
    const layout::Plan plan(table_of(2 + below(5)), {.ranks = ranks,
                                                     .bucket_elements = 1 + below(600),
                                                     .whole_groups = below(2) == 0,
                                                     .replicas = {ranks * copies, copies}});
    const Machine& measured = options.ordered ? ordered : machine;
    const BucketTraffic traffic(
        measured, plan, options,
        wires_of(comm::Hosts::in_blocks(ranks * copies, 1 + below(2)), copies, Transport::mpi,
                 options.ordered ? Reduction::ordered : Reduction::sum));
    ASSERT_EQ(traffic.missing(), "");
    StepModel model = model_of(measured, plan, traffic);
    model.micro_steps = micro_steps;
    const StepPrediction step = predict_step(model);
    const layout::Budget budget = layout::budget_of(plan, {}, options);
    EXPECT_EQ(step.sent_bytes, budget.gradient_wire_bytes + budget.parameter_wire_bytes)
        << "round " << round;
    EXPECT_GE(step.step_s, step.least_s() * (1 - 1e-12));
  }
}

}  // namespace
}  // namespace trireme::plan
