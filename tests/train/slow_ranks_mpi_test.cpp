// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "session/stop.hpp"
#include "train/slow_ranks.hpp"

namespace trireme::train {
namespace {

TEST(SlowRanks, AreNamedWithHostAndFactorOnAllRanks) {
  const auto world = comm::make_mpi_world();
  if (world->size() == 1)
    GTEST_SKIP() << "one rank has no others";
  // With leaves, ranks have different numbers of micro-steps: 4, 2, 2 of 3 ranks.
  const batches::Batches batch{
      .sequences = 8, .micro_sequences = 1, .ranks = world->size(), .leaves = 4};
  const auto seconds_of = [&](bool slows) {
    return (slows ? 1.0 : 0.5) * static_cast<double>(batch.micro_steps(world->rank()));
  };
  const device::EnergyMeter meter(false, "");
  SlowRanks ranks(*world, meter, true);
  const int slow = world->size() - 1;
  std::vector<std::string> lines;
  for (int step = 1; step <= 60; ++step) {
    const bool slows = step <= 25 && world->rank() == slow;
    session::Requests mine{.text_bytes = 1};
    mine.more = ranks.words();
    EXPECT_EQ(session::agree(*world, mine).text_bytes, world->size());
    for (const std::string& line : ranks.look(step)) lines.push_back(line);
    ranks.measured(seconds_of(slows), batch);
  }
  ASSERT_EQ(lines.size(), 2U) << ::testing::PrintToString(lines);
  EXPECT_TRUE(lines[0].starts_with("rank " + std::to_string(slow) +
                                   " is slow: its forward and backward passes take 2.00 times "
                                   "as long as those of the other ranks. "))
      << lines[0];
  EXPECT_NE(lines[0].find(" host " + world->host()), std::string::npos) << lines[0];
  EXPECT_EQ(lines[1], "rank " + std::to_string(slow) + " is no longer slow, after 30 steps");
}

}  // namespace
}  // namespace trireme::train
