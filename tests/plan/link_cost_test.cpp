// SPDX-License-Identifier: Apache-2.0
#include "plan/link_cost.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"

#include "plan/links.hpp"

namespace trireme::plan {
namespace {

using comm::Reduction, comm::Transport;

/// Every operation takes `latency` and a nanosecond per byte.
Link link_of(Transport transport, std::int64_t ranks, std::int64_t hosts, double latency) {
  return priced_link(transport, ranks, hosts, latency, 1e-9);
}

Machine machine_of(std::vector<Link> links) {
  Machine machine;
  machine.links = std::move(links);
  return machine;
}

double seconds(const LinkCost& cost, std::int64_t bytes) {
  return cost.seconds(Operation::reduce_scatter, Numbers::fp32, bytes);
}

TEST(LinkCost, OfOneRankIsNothing) {
  const Machine machine;
  const auto cost = LinkCost::find(machine, {Transport::mpi, Reduction::sum, 1, 1});
  EXPECT_EQ(cost.missing(), "");
  EXPECT_EQ(seconds(cost, 1 << 20), 0);
  EXPECT_EQ(cost.sums_s(), 0);
}

TEST(LinkCost, TakesWhatWasMeasured) {
  const Machine machine =
      machine_of({link_of(Transport::mpi, 2, 2, 1e-6), link_of(Transport::mpi, 4, 4, 5e-6),
                  link_of(Transport::mpi, 4, 1, 7e-6)});
  const auto cost = LinkCost::find(machine, {Transport::mpi, Reduction::sum, 4, 4});
  EXPECT_FALSE(cost.extrapolated());
  EXPECT_DOUBLE_EQ(seconds(cost, 1000), 5e-6 + 1e-6);
  EXPECT_DOUBLE_EQ(cost.sums_s(), 1e-5);
}

TEST(LinkCost, CarriesTheNearestOver) {
  const Machine machine =
      machine_of({link_of(Transport::mpi, 2, 2, 1e-6), link_of(Transport::mpi, 4, 4, 5e-6)});
  const auto cost = LinkCost::find(machine, {Transport::mpi, Reduction::sum, 16, 16});
  EXPECT_TRUE(cost.extrapolated());
  EXPECT_DOUBLE_EQ(seconds(cost, 16000), 15.0 / 3 * (5e-6 + 4000e-9));
  EXPECT_DOUBLE_EQ(cost.control_s(), 2 * 2e-5);  // 4 rounds where 2 were measured
}

TEST(LinkCost, OfACopyInMemoryGrowsWithTheRanksOfAHost) {
  Link inside = link_of(Transport::shared_memory, 4, 1, 1e-6);
  Link between = link_of(Transport::mpi, 2, 2, 1e-5);
  const auto copy_s = [&](const Wire& wire, std::int64_t ranks_on_host) {
    const Machine machine = machine_of({inside, between});
    return LinkCost::find(machine, wire).copy_s(1'000'000, ranks_on_host);
  };
  const Wire same{Transport::shared_memory, Reduction::sum, 4, 1};
  EXPECT_EQ(copy_s(same, 4), std::nullopt) << "it was not measured";
  inside.copy_s_per_byte = 1e-9;
  EXPECT_DOUBLE_EQ(copy_s(same, 4).value(), 2e-5 + 1e-3);
  EXPECT_DOUBLE_EQ(copy_s({Transport::shared_memory, Reduction::sum, 8, 1}, 8).value(),
                   1.5 * 2e-5 + 2e-3);
  const Wire hosts{Transport::hierarchical, Reduction::sum, 8, 2};
  EXPECT_EQ(copy_s(hosts, 4), std::nullopt) << "it is that between hosts that counts";
  between.copy_s_per_byte = 3e-9;
  EXPECT_DOUBLE_EQ(copy_s(hosts, 4).value(), 2 * 2e-5 + 4 * 3e-3);
  EXPECT_EQ(copy_s({Transport::self, Reduction::sum, 1, 1}, 1), std::nullopt);
}

TEST(LinkCost, PutsHierarchyTogetherFromInsideAndBetweenHosts) {
  const Machine machine = machine_of(
      {link_of(Transport::shared_memory, 4, 1, 1e-6), link_of(Transport::mpi, 2, 2, 1e-5)});
  const auto cost = LinkCost::find(machine, {Transport::hierarchical, Reduction::sum, 8, 2});
  EXPECT_EQ(cost.missing(), "");
  EXPECT_TRUE(cost.extrapolated());
  EXPECT_DOUBLE_EQ(seconds(cost, 8000), (1e-6 + 8e-6) + (1e-5 + 8e-6));
  const auto more = LinkCost::find(machine, {Transport::hierarchical, Reduction::sum, 16, 4});
  EXPECT_DOUBLE_EQ(seconds(more, 8000), (1e-6 + 8e-6) + 3 * (1e-5 + 4e-6));
}

/// Groups share the network between hosts, and the CPUs of a host if there are too few.
TEST(LinkCost, GroupsOfRanksShareWhatTheyCommunicateOver) {
  Machine machine =
      machine_of({link_of(Transport::mpi, 2, 2, 1e-6), link_of(Transport::mpi, 2, 1, 1e-6)});
  machine.cpus = 4;
  const auto of = [&](std::int64_t hosts, std::int64_t groups) {
    const auto cost = LinkCost::find(machine, {Transport::mpi, Reduction::sum, 2, hosts, groups});
    EXPECT_EQ(cost.extrapolated(), groups > 1);
    return seconds(cost, 1000);
  };
  EXPECT_DOUBLE_EQ(of(2, 1), 1e-6 + 1e-6);
  EXPECT_DOUBLE_EQ(of(2, 4), 1e-6 + 4e-6);
  EXPECT_DOUBLE_EQ(of(1, 2), 1e-6 + 1e-6);
  EXPECT_DOUBLE_EQ(of(1, 4), 2 * (1e-6 + 1e-6));
  machine.links.push_back(link_of(Transport::mpi, 2, 2, 5e-6));
  machine.links.back().groups = 4;
  const auto measured = LinkCost::find(machine, {Transport::mpi, Reduction::sum, 2, 2, 4});
  EXPECT_FALSE(measured.extrapolated());
  EXPECT_DOUBLE_EQ(seconds(measured, 1000), 5e-6 + 1e-6);
}

TEST(LinkCost, NamesWhatIsMissing) {
  const Machine machine = machine_of({link_of(Transport::shared_memory, 2, 1, 1e-6)});
  const auto cost = LinkCost::find(machine, {Transport::hierarchical, Reduction::sum, 4, 2});
  EXPECT_NE(cost.missing().find("mpi among 2 ranks on 2 hosts"), std::string::npos);
  EXPECT_THROW(seconds(cost, 1000), ContractError);
  EXPECT_NE(LinkCost::find(machine, {Transport::shared_memory, Reduction::ordered, 2, 1}).missing(),
            "");
}

TEST(LinkCost, PricesBf16AsFp32WhereThatIsAllThereIs) {
  Machine machine = machine_of({link_of(Transport::mpi, 2, 2, 1e-6)});
  const Wire wire{Transport::mpi, Reduction::sum, 2, 2};
  const auto of = [&] {
    return LinkCost::find(machine, wire).seconds(Operation::all_gather, Numbers::bf16, 1000);
  };
  EXPECT_DOUBLE_EQ(of(), 2e-6);
  machine.links[0].collectives.push_back({.operation = Operation::all_gather,
                                          .dtype = Numbers::bf16,
                                          .latency_s = 9e-6,
                                          .points = {}});
  EXPECT_DOUBLE_EQ(of(), 9e-6);
}

}  // namespace
}  // namespace trireme::plan
