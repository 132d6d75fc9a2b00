// SPDX-License-Identifier: Apache-2.0
// Shared segments, and the choice of a transport when the ranks of one host cannot map each other's
// memory. For this the last rank runs in a thread with a private network namespace, in which the
// sockets that exchange the files are not reachable. Private process namespaces need a process per
// rank from the start: tests/integration/containers_test.py.
#include "comm/transport/shared_segment.hpp"

#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include "comm/communicator.hpp"
#include "comm/control/mpi_world.hpp"

namespace trireme::comm {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// Runs `action` on every rank, on the last one in a private network namespace. Returns false on
/// all ranks where that is not permitted.
bool with_last_rank_apart(MpiWorld& world, const std::function<void()>& action) {
  std::int64_t refused = 0;
  std::thread([&] {
    if (world.rank() == world.size() - 1 && unshare(CLONE_NEWNET) != 0)
      refused = 1;
    world.max({&refused, 1});
    if (refused == 0)
      action();
  }).join();
  return refused == 0;
}

TEST(SharedSegment, EveryRankSeesEveryPieceAndFreshMemoryIsZero) {
  MpiWorld world;
  const OwnedComm node = OwnedComm::of_host(world.comm());
  const auto size = static_cast<std::size_t>(node.size());
  const std::size_t bytes = 3 * 4096 + 5;
  const SharedSegment segment(node.get(), world, bytes, "a test");
  ASSERT_EQ(segment.bytes(), bytes);
  for (std::size_t r = 0; r < size; ++r)
    for (std::size_t i = 0; i < bytes; ++i)
      ASSERT_EQ(segment.piece(static_cast<int>(r))[i], std::byte{0}) << "piece " << r;
  world.barrier();
  // Each rank writes its number into the part of every rank.
  for (std::size_t r = 0; r < size; ++r)
    segment.piece(static_cast<int>(r))[node.rank()] = static_cast<std::byte>(node.rank() + 1);
  world.barrier();
  for (std::size_t r = 0; r < size; ++r)
    for (std::size_t writer = 0; writer < size; ++writer)
      EXPECT_EQ(segment.piece(static_cast<int>(r))[writer], static_cast<std::byte>(writer + 1));
}

/// KiB of this process's page tables.
long page_tables_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmPTE:"))
      return std::stol(line.substr(6));
  return -1;
}

TEST(SharedSegment, PageTablesDoNotGrowWithThePeersUntilTheyAreRead) {
  MpiWorld world;
  const OwnedComm node = OwnedComm::of_host(world.comm());
  constexpr std::size_t bytes = std::size_t{64} << 20U;
  constexpr long of_one_piece_kib = bytes / 4096 * 8 / 1024;
  const long before = page_tables_kib();
  const SharedSegment segment(node.get(), world, bytes, "a test");
  EXPECT_LE(page_tables_kib() - before, of_one_piece_kib * 3 / 2 + 4 * node.size());
  world.barrier();
}

TEST(SharedSegment, AutoChoosesMpiWhereMemoryCannotBeSharedAndLogsTheReason) {
  MpiWorld world;
  if (world.size() == 1)
    return;
  const auto device = device::make_cpu_device(1);
  const bool apart = with_last_rank_apart(world, [&] {
    const auto made = make_communicator(Transport::automatic, Reduction::sum, world, *device);
    EXPECT_EQ(made->name(), "mpi");
    EXPECT_THAT(made->note(), AllOf(HasSubstr("auto chose mpi"), HasSubstr("of the node"),
                                    HasSubstr("private network namespaces")));
  });
  if (!apart)
    GTEST_SKIP() << "network namespaces are not permitted here";
}

TEST(SharedSegment, AnExplicitChoiceFailsWithTheSameReason) {
  MpiWorld world;
  if (world.size() == 1)
    return;
  const auto device = device::make_cpu_device(1);
  const bool apart = with_last_rank_apart(world, [&] {
    try {
      make_communicator(Transport::shared_memory, Reduction::sum, world, *device);
      ADD_FAILURE() << "rank " << world.rank() << " shares memory";
    } catch (const EnvironmentError& error) {
      EXPECT_THAT(error.what(), HasSubstr("private network namespaces"));
      EXPECT_EQ(verdict_of(error).code, ExitCode::environment);
    }
  });
  if (!apart)
    GTEST_SKIP() << "network namespaces are not permitted here";
}

TEST(SharedSegment, LogsNothingWhereMemoryIsShared) {
  MpiWorld world;
  const auto device = device::make_cpu_device(1);
  const auto made = make_communicator(Transport::automatic, Reduction::sum, world, *device);
  EXPECT_EQ(made->name(), world.size() == 1 ? "self" : "shared_memory");
  EXPECT_THAT(made->note(), IsEmpty());
}

}  // namespace
}  // namespace trireme::comm
