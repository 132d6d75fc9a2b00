// SPDX-License-Identifier: Apache-2.0
#include "doctor/attempts.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/control/together.hpp"

#include "doctor/measurements.hpp"
#include "support/scratch_directory.hpp"

namespace trireme::doctor {
namespace {

using Problems = std::vector<Problem>;

[[noreturn]] void lack() {
  throw StorageError("file system", "write", "no space", "src/x.cpp", 7);
}
const std::string lacking = "file system: write failed: no space (x.cpp:7)";

TEST(Attempts, OfAllPartsWithoutAFailure) {
  const auto world = comm::make_mpi_world();
  Problems problems;
  Attempts attempts(*world, problems);
  int done = 0;
  for (int i = 0; i < 3; ++i)
    attempts.measure("a part", [&](comm::World& all) {
      all.barrier();
      done += all.size();
    });
  EXPECT_EQ(done, 3 * world->size());
  EXPECT_EQ(problems, Problems{});
  EXPECT_EQ(exit_code_of(problems), ExitCode::done);
}

TEST(Attempts, ContinueAfterAFailureOfEveryRank) {
  const auto world = comm::make_mpi_world();
  Problems problems;
  Attempts attempts(*world, problems);
  attempts.measure("files", [](comm::World&) { lack(); });
  attempts.measure("names", [](comm::World& all) {
    comm::together(all, [] { throw UserError("no such name"); });
  });
  std::vector<std::string> said;
  attempts.measure("texts", [&](comm::World& all) { said = all.gather_all("here"); });
  EXPECT_EQ(said, std::vector<std::string>(static_cast<std::size_t>(world->size()), "here"));
  EXPECT_EQ(problems, (Problems{{"files", 0, lacking, ExitCode::environment},
                                {"names", 0, "no such name", ExitCode::user_error}}));
  EXPECT_EQ(exit_code_of(problems), ExitCode::environment);
}

TEST(Attempts, TellEveryRankOfAFailureOfOne) {
  const auto world = comm::make_mpi_world();
  const int last = world->size() - 1;
  Problems problems;
  Attempts attempts(*world, problems);
  attempts.measure("alone", [&](comm::World& all) {
    all.barrier();
    if (all.rank() == last)
      lack();
  });
  attempts.measure("together", [&](comm::World& all) {
    comm::together(all, [&] {
      if (all.rank() == last)
        lack();
    });
  });
  EXPECT_EQ(problems, (Problems{{"alone", last, lacking, ExitCode::environment},
                                {"together", last, lacking, ExitCode::environment}}));
  std::int64_t ranks = 1;
  attempts.measure("after it", [&](comm::World& all) { all.sum({&ranks, 1}); });
  EXPECT_EQ(ranks, world->size());
}

/// The deadline ends the wait of the other ranks, and all continue together.
TEST(Attempts, EndWhenOthersWaitForTheRankThatFailed) {
  const auto world = comm::make_mpi_world();
  const int last = world->size() - 1;
  Problems problems;
  Attempts attempts(*world, problems, 0.2);
  attempts.measure("alone", [&](comm::World& all) {
    if (all.rank() == last)
      lack();
    all.barrier();
  });
  ASSERT_FALSE(problems.empty());
  EXPECT_EQ(problems.back(), (Problem{"alone", last, lacking, ExitCode::environment}));
  if (last > 0) {
    EXPECT_THAT(problems[0].reason, testing::HasSubstr("a barrier"));
  }
  std::int64_t ranks = 1;
  world->sum({&ranks, 1});
  EXPECT_EQ(ranks, world->size());
}

TEST(Measurements, OfFilesNeedAWritableDirectoryOnAllRanks) {
  const auto world = comm::make_mpi_world();
  const test::ScratchDirectory scratch;
  expect_writable(*world, scratch.path());
  EXPECT_THROW(expect_writable(*world, "/none/at/all"), UserError);
  std::vector<FileSystem> measured;
  measure_file_systems(*world, scratch.path(), measured);
  EXPECT_EQ(measured.size(), 1U);
}

}  // namespace
}  // namespace trireme::doctor
