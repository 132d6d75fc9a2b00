// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"

#include "comm/control/together.hpp"
#include "comm/control/world.hpp"

#include "record/checkpoint/checkpoint.hpp"
#include "record/checkpoint/checkpoint_writer.hpp"
#include "record/checkpoint_cases.hpp"
#include "record/run/run_directory.hpp"

#include "support/checkpoint_reader.hpp"
#include "support/scratch_directory.hpp"

namespace trireme::record {
namespace {

/// Rank 0's scratch directory, known to all.
struct Shared {
  explicit Shared(comm::World& world) {
    if (world.rank() == 0)
      mine = std::make_unique<test::ScratchDirectory>();
    path = world.broadcast(mine ? mine->path() : "", 0);
  }
  std::unique_ptr<test::ScratchDirectory> mine;
  std::string path;
};

TEST(CheckpointOverMpi, GoesToOneRankAndBack) {
  const auto world = comm::make_mpi_world();
  const Shared shared(*world);
  const RunDirectory run(shared.path + "/run", *world);
  const auto saved = save_small(run.path(), 10, *world, 3);
  EXPECT_EQ(saved.directory, run.checkpoints() + "/step-00000010");
  EXPECT_EQ(load_small(saved.directory, *world).next_sample, 80U);
  if (world->rank() == 0) {
    const auto alone = comm::make_self_world();
    load_small(saved.directory, *alone, 1);
    save_small(run.path(), 20, *alone, 3);
    const CheckpointReader a(saved.directory), b(run.checkpoints() + "/step-00000020");
    EXPECT_EQ(a.ranks(), world->size());
    EXPECT_EQ(b.ranks(), 1);
    for (const std::string& parameter : a.parameters())
      EXPECT_EQ(a.content_hash("master", parameter), b.content_hash("master", parameter));
  }
  world->barrier();
  EXPECT_EQ(load_small(run.checkpoints() + "/step-00000020", *world, 1'000'000).step, 20);
}

TEST(RunDirectoryOverMpi, IsTheSameOnAllRanks) {
  const auto world = comm::make_mpi_world();
  const Shared shared(*world);
  const std::string before = std::filesystem::current_path();
  const std::string mine = fmt::format("{}/{}", shared.path, world->rank());
  std::filesystem::create_directory(mine);
  std::filesystem::current_path(mine);
  try {
    const RunDirectory run("run", *world);
    EXPECT_EQ(world->size(), 1);
  } catch (const EnvironmentError& error) {
    EXPECT_GT(world->size(), 1);
    const auto words = fmt::format("it is {}/1/run for this rank and {}/0/run for rank 0",
                                   shared.path, shared.path);
    EXPECT_THAT(error.what(), testing::HasSubstr(world->rank() == 1 ? words : ""));
  }
  std::filesystem::current_path(before);
  EXPECT_EQ(RunDirectory(shared.path + "/run", *world).path(), shared.path + "/run");
  world->barrier();
}

TEST(CheckpointOverMpi, IsWrittenWhileTheRanksDoOtherThings) {
  const auto world = comm::make_mpi_world();
  const Shared shared(*world);
  const layout::Plan plan = plan_for(world->size());
  Owned owned(plan, world->rank());
  owned.fill();
  CheckpointWriter writer(shared.path, plan, 0, *world);
  writer.start(facts_of(10), owned.slabs());
  std::optional<SavedCheckpoint> saved;
  while (!saved) {
    std::int64_t busy[] = {writer.busy() ? 1 : 0};
    world->sum(busy);
    if (busy[0] == 0)
      saved = writer.advance();
  }
  EXPECT_FALSE(writer.under_way());
  EXPECT_EQ(load_small(saved->directory, *world).step, 10);
  writer.start(facts_of(20), owned.slabs());
  EXPECT_EQ(load_small(writer.finish().directory, *world).step, 20);
  world->barrier();
}

TEST(CheckpointOverMpi, RefusesADamagedOneOnAllRanks) {
  const auto world = comm::make_mpi_world();
  const Shared shared(*world);
  const auto saved = save_small(shared.path, 10, *world);
  if (world->rank() == world->size() - 1)
    std::filesystem::resize_file(saved.directory + "/rank-00000.h5", 100);
  world->barrier();
  EXPECT_THROW(load_small(saved.directory, *world), UserError);
}

TEST(CheckpointOverMpi, FailsOnAllRanksWhereOneCannotWrite) {
  const auto world = comm::make_mpi_world();
  const Shared shared(*world);
  test::write_bytes(shared.path + "/checkpoints", "a file in the way");
  world->barrier();
  EXPECT_THROW(save_small(shared.path, 10, *world), EnvironmentError);
}

}  // namespace
}  // namespace trireme::record
