// SPDX-License-Identifier: Apache-2.0
#include "comm/control/placement.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme::comm {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> texts(const Placement& placement, bool warnings) {
  std::vector<std::string> found;
  for (const PlacementLine& line : describe(placement))
    if (line.warning == warnings)
      found.push_back(line.text + (line.remedy.empty() ? "" : ": " + line.remedy));
    else
      EXPECT_EQ(line.warning, !line.remedy.empty()) << line.text;
  return found;
}

TEST(Placement, PrintsCpusAsRanges) {
  EXPECT_EQ(ranges_text({}), "");
  EXPECT_EQ(ranges_text({5}), "5");
  EXPECT_EQ(ranges_text({0, 1, 2, 3, 8, 10, 11}), "0-3,8,10-11");
}

TEST(Placement, PrintsOneLinePerHostAndNoWarningWithoutAProblem) {
  const Placement placement{{{"node0", {0, 1, 2, 3}, 4, 2},
                             {"node0", {0, 1, 2, 3}, 4, 2},
                             {"node1", {0, 1, 2, 3}, 4, 4}}};
  EXPECT_THAT(placement.hosts(), ElementsAre("node0", "node1"));
  EXPECT_THAT(placement.ranks_on("node0"), ElementsAre(0, 1));
  EXPECT_THAT(texts(placement, false),
              ElementsAre("3 ranks on 2 hosts",
                          "  node0: ranks 0-1, 4 of 4 CPUs, 2 threads per rank, not bound",
                          "  node1: rank 2, 4 of 4 CPUs, 4 threads per rank, not bound"));
  EXPECT_THAT(texts(placement, true), ElementsAre());
}

TEST(Placement, WarnsOfFewerCpusThanThreads) {
  const Placement placement{{{"n", {0}, 8, 4}, {"n", {1}, 8, 4}}};
  EXPECT_THAT(texts(placement, false),
              ElementsAre("2 ranks on 1 host",
                          "  n: ranks 0-1, 2 of 8 CPUs, 4 threads per rank, bound to 0 | 1"));
  EXPECT_THAT(
      texts(placement, true),
      ElementsAre(AllOf(HasSubstr("ranks 0-1 on n may use 1 CPU but compute with 4 threads"),
                        HasSubstr("--bind-to none"))));
}

TEST(Placement, WarnsOfMoreRanksThanCpus) {
  const Placement placement{{{"n", {0, 1}, 2, 1}, {"n", {0, 1}, 2, 1}, {"n", {0, 1}, 2, 1}}};
  EXPECT_THAT(texts(placement, true),
              ElementsAre("3 ranks share 2 CPUs on n, so measured times mean little: start at most "
                          "2 ranks there"));
}

TEST(Placement, WarnsOfMoreThreadsThanCpus) {
  const Placement placement{{{"n", {0, 1}, 2, 2}, {"n", {0, 1}, 2, 2}}};
  EXPECT_THAT(texts(placement, true),
              ElementsAre(HasSubstr("4 threads of all ranks share 2 CPUs on n")));
}

TEST(Placement, WarnsOfIdleCpusWhenBound) {
  const Placement placement{{{"n", {0}, 8, 1}, {"n", {1}, 8, 1}}};
  EXPECT_THAT(texts(placement, true),
              ElementsAre(AllOf(HasSubstr("bound to 2 of 8 CPUs"), HasSubstr("--bind-to none"))));
}

TEST(Placement, GathersThisProcess) {
  const auto world = make_self_world();
  const Placement placement = gather_placement(*world, 3);
  ASSERT_EQ(placement.ranks.size(), 1U);
  EXPECT_EQ(placement.ranks[0].host, world->host());
  EXPECT_EQ(placement.ranks[0].threads, 3);
  EXPECT_GE(placement.ranks[0].host_cpus, 1);
  EXPECT_EQ(placement.ranks[0].cpus, place_here(world->host(), 3).cpus);
  EXPECT_FALSE(placement.ranks[0].cpus.empty());
}

}  // namespace
}  // namespace trireme::comm
