// SPDX-License-Identifier: Apache-2.0
#include "plan/machine.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/links.hpp"

namespace trireme::plan {
namespace {

Link link_among(std::int64_t ranks, double sums_s) {
  Link link{{.ranks = ranks}, {}};
  link.sums_s = sums_s;
  return link;
}

TEST(Merged, ReplacesWhatIsOfTheSameKindAndKeepsTheRest) {
  Machine older;
  older.ranks_per_host = 4;
  older.links = {link_among(2, 1), link_among(4, 2)};
  older.compute = {{.model = "a", .micro_step_s = 1, .ready = {}},
                   {.model = "b", .micro_step_s = 2, .ready = {}}};
  Machine newer;
  newer.processor = "new";
  newer.ranks_per_host = 2;
  newer.storage_bytes_per_s = 5;
  newer.links = {link_among(2, 3)};
  newer.compute = {{.model = "b", .micro_step_s = 4, .ready = {}}};

  const Machine both = merged(older, newer);
  EXPECT_EQ(both.processor, "new");
  EXPECT_EQ(both.ranks_per_host, 4);
  EXPECT_EQ(both.storage_bytes_per_s, 5);
  ASSERT_EQ(both.links.size(), 2U);
  EXPECT_EQ(both.links[0].sums_s, 2);
  EXPECT_EQ(both.links[1].sums_s, 3);
  ASSERT_EQ(both.compute.size(), 2U);
  EXPECT_EQ(both.compute[0].micro_step_s, 1);
  EXPECT_EQ(both.compute[1].micro_step_s, 4);
}

TEST(MachineTable, HasNoBandwidthWhereAllSizesTookEquallyLong) {
  using testing::HasSubstr;
  const auto table_with = [](double seconds_per_byte) {
    Machine machine;
    machine.links = {priced_link(comm::Transport::mpi, 2, 1, 1e-4, seconds_per_byte)};
    return machine_table(machine);
  };
  EXPECT_THAT(table_with(0), HasSubstr("      100.00           -"));
  EXPECT_EQ(table_with(3e-25), table_with(0));
  EXPECT_THAT(table_with(1e-9), HasSubstr("       1.000"));
}

}  // namespace
}  // namespace trireme::plan
