// SPDX-License-Identifier: Apache-2.0
#include "session/host_memory.hpp"

#include <cstdint>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "session/machine.hpp"

namespace trireme::session {
namespace {

using testing::HasSubstr;

constexpr std::int64_t gib = std::int64_t{1} << 30;

TEST(HostMemory, IsKnown) {
  const AvailableMemory room = available_memory();
  EXPECT_GT(room.host_bytes, 0);
  EXPECT_NE(room.host_limit, "");
}

TEST(HostMemory, NamesTheLimitThatIsTooLow) {
  const AvailableMemory room{8 * gib, 5 * gib, "the memory of the host", "ulimit -v"};
  EXPECT_EQ(memory_problem(room, 4 * gib, 2), "");
  EXPECT_EQ(memory_problem(room, 4 * gib, 3),
            "3 ranks need 12 GiB (4 GiB each), but the memory of the host allows 8 GiB");
  EXPECT_EQ(memory_problem(room, 6 * gib, 1), "a rank needs 6 GiB, but ulimit -v allows it 5 GiB");
}

TEST(ShareOfCpus, RespectsQuotas) {
  EXPECT_EQ(share_of_cpus(8, false, 2, 0), 4);
  EXPECT_EQ(share_of_cpus(8, false, 2, 0.5), 1);
  EXPECT_EQ(share_of_cpus(8, false, 2, 5.5), 2);
  EXPECT_EQ(share_of_cpus(8, false, 2, 100), 4);
  EXPECT_EQ(share_of_cpus(3, true, 2, 4), 2);
  EXPECT_EQ(share_of_cpus(1, false, 2, 0), 1);
}

}  // namespace
}  // namespace trireme::session
