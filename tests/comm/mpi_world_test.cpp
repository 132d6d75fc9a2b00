// SPDX-License-Identifier: Apache-2.0
#include "comm/control/mpi_world.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mpi.h>

#include "comm/control/mpi_comm.hpp"
#include "comm/control/placement.hpp"

namespace trireme::comm {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(MpiWorld, KnowsItsRanksAndHost) {
  MpiWorld world;
  int rank = -1, size = -1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  EXPECT_EQ(world.rank(), rank);
  EXPECT_EQ(world.size(), size);
  // The tests run on one host.
  EXPECT_EQ(world.local_size(), size);
  EXPECT_EQ(world.local_rank(), rank);
  EXPECT_THAT(world.gather_all(world.host()), Each(world.host()));
  EXPECT_THAT(mpi_version(), HasSubstr("MPI"));
}

/// Error messages use the rank in the whole world.
TEST(MpiWorld, APartKnowsTheRankInTheWholeAndTheHost) {
  MpiWorld world;
  EXPECT_EQ(world.rank_of_run(), world.rank());
  MpiWorld part(world, world.rank() % 2);
  EXPECT_EQ(part.rank(), world.rank() / 2);
  EXPECT_EQ(part.rank_of_run(), world.rank());
  EXPECT_EQ(part.host(), world.host());
}

TEST(MpiWorld, SumsAndMaximaOfIntegers) {
  MpiWorld world;
  const std::int64_t n = world.size(), r = world.rank();
  std::array<std::int64_t, 3> sums{1, r, std::int64_t{1} << 40U};
  world.sum(sums);
  EXPECT_EQ(sums[0], n);
  EXPECT_EQ(sums[1], n * (n - 1) / 2);
  EXPECT_EQ(sums[2], n << 40U);
  std::array<std::int64_t, 2> largest{r, -r};
  world.max(largest);
  EXPECT_EQ(largest[0], n - 1);
  EXPECT_EQ(largest[1], 0);
  world.barrier();
}

TEST(MpiWorld, GathersNumbersAndTextsInRankOrder) {
  MpiWorld world;
  const auto numbers = world.gather_all(std::array{world.rank() + 0.5, world.rank() * 2.0});
  ASSERT_EQ(numbers.size(), 2U * static_cast<std::size_t>(world.size()));
  for (int r = 0; r < world.size(); ++r) {
    EXPECT_EQ(numbers[static_cast<std::size_t>(2 * r)], r + 0.5);
    EXPECT_EQ(numbers[static_cast<std::size_t>(2 * r + 1)], r * 2.0);
  }
  EXPECT_THAT(largest_of_ranks(world, std::array{world.rank() + 0.5, world.rank() * -2.0}),
              ElementsAre(world.size() - 0.5, 0.0));
  // Lengths differ; rank 0's text is empty.
  const auto texts = world.gather_all(std::string(static_cast<std::size_t>(3 * world.rank()), 'x'));
  EXPECT_EQ(world.gather(std::string(static_cast<std::size_t>(3 * world.rank()), 'x')),
            world.rank() == 0 ? texts : std::vector<std::string>());
  ASSERT_EQ(texts.size(), static_cast<std::size_t>(world.size()));
  for (int r = 0; r < world.size(); ++r)
    EXPECT_EQ(texts[static_cast<std::size_t>(r)],
              std::string(static_cast<std::size_t>(3 * r), 'x'));
}

TEST(MpiWorld, ExchangesBytesOfAnyLengthBetweenPartners) {
  MpiWorld world;
  // Messages are split every 16 MiB.
  const std::size_t lengths[] = {0, 1, (std::size_t{1} << 24) + 1, std::size_t{40} << 20};
  std::string all(*std::ranges::max_element(lengths) + 100, '\0');
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<char>(i * 7 % 251);
  const auto bytes_of = [&](int rank, std::size_t round) {
    const auto place = static_cast<std::size_t>(rank) + round;
    return all.substr(place, lengths[place % std::size(lengths)]);
  };
  std::string theirs = "left over";
  for (std::size_t round = 0; round < std::size(lengths); ++round)
    for (int shift = 1; shift < world.size(); ++shift) {
      const int to = (world.rank() + shift) % world.size();
      const int from = (world.rank() + world.size() - shift) % world.size();
      world.exchange(bytes_of(world.rank(), round), to, theirs, from);
      EXPECT_TRUE(theirs == bytes_of(from, round)) << "round " << round << ", shift " << shift;
    }
}

TEST(MpiWorld, BroadcastsBytesOfAnyLengthFromAnyRoot) {
  MpiWorld world;
  for (int root = 0; root < world.size(); ++root)
    for (const std::size_t length : {0UL, 1UL, 100'003UL}) {
      std::string bytes(length, '\0');
      for (std::size_t i = 0; i < length; ++i) bytes[i] = static_cast<char>(i * 7 % 256);
      const std::string mine = world.rank() == root ? bytes : "left over";
      EXPECT_EQ(world.broadcast(mine, root), bytes) << "root " << root << " length " << length;
    }
}

TEST(MpiWorld, GathersThePlacesOfAllRanks) {
  MpiWorld world;
  const Placement placement = gather_placement(world, world.rank() + 1);
  ASSERT_EQ(placement.ranks.size(), static_cast<std::size_t>(world.size()));
  for (int r = 0; r < world.size(); ++r)
    EXPECT_EQ(placement.ranks[static_cast<std::size_t>(r)].threads, r + 1);
  EXPECT_EQ(placement.hosts().size(), 1U);
  EXPECT_EQ(placement.ranks[static_cast<std::size_t>(world.rank())].cpus,
            place_here(world.host(), 1).cpus);
}

TEST(MpiWorld, FailingCallReportsMpisMessageStatementAndPlace) {
  MpiWorld world;
  try {
    TRIREME_MPI(MPI_Send(nullptr, 0, MPI_BYTE, world.size() + 5, 0, world.comm()));
    FAIL() << "sending to a rank that does not exist succeeded";
  } catch (const CommError& error) {
    EXPECT_THAT(error.what(),
                ::testing::AnyOf(HasSubstr("MPI_ERR_RANK"), HasSubstr("Invalid rank")));
    EXPECT_THAT(error.what(), HasSubstr("MPI_Send(nullptr, 0, MPI_BYTE, world.size() + 5"));
    EXPECT_THAT(error.what(), HasSubstr("mpi_world_test.cpp:"));
    EXPECT_EQ(verdict_of(error).code, ExitCode::environment);
  }
}

}  // namespace
}  // namespace trireme::comm
