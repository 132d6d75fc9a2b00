// SPDX-License-Identifier: Apache-2.0
// What a save removes and keeps, and where checkpoints may be written.
#include "record/checkpoint/checkpoint_directory.hpp"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.hpp"

#include "record/checkpoint/checkpoint_writer.hpp"
#include "record/checkpoint_cases.hpp"

#include "support/scratch_directory.hpp"

namespace trireme::record {
namespace {

using testing::AllOf;
using testing::HasSubstr;
namespace fs = std::filesystem;

struct CheckpointDirectory : testing::Test {
  void SetUp() override { fs::create_directory(checkpoints); }

  [[nodiscard]] std::string in(const std::string& name) const { return checkpoints + "/" + name; }
  void make(const std::string& name) const {
    fs::create_directories(in(name));
    test::write_bytes(in(name) + "/chapter1", "x");
  }
  SavedCheckpoint save(std::int64_t step, Retention retention = 0) const {
    return save_small(scratch.path(), step, *world, retention);
  }
  /// The refusal of `checkpoints` as checkpoint.directory, or "".
  [[nodiscard]] std::string refusal() const {
    try {
      expect_place_of_checkpoints(scratch / "run", checkpoints);
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  }

  test::ScratchDirectory scratch;
  const std::string checkpoints = scratch / "checkpoints";
  const std::unique_ptr<comm::World> world = comm::make_self_world();
};

TEST_F(CheckpointDirectory, LosesLeftoversOfASaveAndNothingElse) {
  const std::vector<std::string> ours = {"step-00000001.tmp", "step-00000002.tmp.removed",
                                         "latest.tmp", "step-123456789.tmp"};
  const std::vector<std::string> others = {
      "thesis.tmp.d",           "results.tmp",      "step-00000002.tmp_mybackup",
      "step-00000002.tmp.mine", "step-1.tmp",       "step-00000002.tmp.old.2",
      "my-step-00000002.tmp",   "latest.tmp.saved", "step-00000000000000000002.tmp"};
  for (const auto* names : {&ours, &others})
    for (const std::string& name : *names) make(name);
  save(3, 1);
  save(4, 1);
  for (const std::string& name : ours) EXPECT_FALSE(fs::exists(in(name))) << name;
  for (const std::string& name : others) EXPECT_TRUE(fs::exists(in(name) + "/chapter1")) << name;
  EXPECT_FALSE(fs::exists(in("step-00000003")));
}

TEST_F(CheckpointDirectory, KeepsCopiesOfUsersAndCountsThemNot) {
  save(6);
  const std::vector<std::string> copies = {"step-6", "step-000006", "step-0000000006"};
  for (const std::string& copy : copies)
    fs::copy(in("step-00000006"), in(copy), fs::copy_options::recursive);
  EXPECT_EQ(newest_checkpoint(scratch.path())->directory, in("step-00000006"));
  save(7, 2);
  EXPECT_TRUE(fs::exists(in("step-00000006")));
  save(8, 1);
  save(9, 1);
  for (const std::string& copy : copies) EXPECT_EQ(load_small(in(copy), *world).step, 6) << copy;
  for (const char* ours : {"step-00000006", "step-00000007", "step-00000008"})
    EXPECT_FALSE(fs::exists(in(ours))) << ours;
}

TEST_F(CheckpointDirectory, GivesBackACheckpointThatWasBeingReplaced) {
  save(1);
  fs::copy(in("step-00000001"), in("step-00000001.tmp"));
  fs::rename(in("step-00000001"), in("step-00000001.tmp.old"));  // killed before the second move
  EXPECT_FALSE(newest_checkpoint(scratch.path()));
  restore_replaced(scratch.path());
  EXPECT_EQ(load_small(in("step-00000001"), *world).step, 1);

  fs::copy(in("step-00000001"), in("step-00000001.tmp.old"));  // killed after the second move
  fs::rename(in("step-00000001"), in("step-00000002.tmp.old"));
  fs::rename(in("step-00000001.tmp.old"), in("step-00000001"));
  save(3);  // which restores as well, for those who never resumed
  EXPECT_EQ(fs::exists(in("step-00000001")) && fs::exists(in("step-00000002")), true);
  EXPECT_FALSE(fs::exists(in("step-00000001.tmp")));
}

TEST_F(CheckpointDirectory, ReportsALatestThatCannotBeRead) {
  save(1);
  EXPECT_EQ(doubt_latest(scratch.path(), in("step-00000001")), "");
  fs::remove(in("latest"));
  fs::create_directory(in("latest"));
  EXPECT_THAT(doubt_latest(scratch.path(), in("step-00000001")), HasSubstr(in("latest")));
}

/// Runs as another user, since root may remove anything.
void become_nobody() {
  if (::geteuid() == 0 && ::setuid(65534) != 0)
    std::exit(1);
}

TEST_F(CheckpointDirectory, GoesOnWhereALeftoverCannotBeRemovedAndSaysSoOnce) {
  ::chmod(scratch.path().c_str(), 0777);
  ::chmod(checkpoints.c_str(), 0777);
  make("step-00000001.tmp.removed");
  ::chmod(in("step-00000001.tmp.removed").c_str(), 0555);
  const auto attempt = [&] {
    become_nobody();
    const layout::Plan plan = plan_for(1);
    Owned owned(plan, 0);
    owned.fill();
    CheckpointWriter writer(scratch.path(), plan, 1, *world);
    for (std::int64_t step = 2; step < 5; ++step) {
      writer.start(facts_of(step), owned.slabs());
      for (const std::string& warning : writer.finish().warnings)
        std::fprintf(stderr, "step %d: %s\n", static_cast<int>(step), warning.c_str());
    }
    std::exit(fs::exists(in("step-00000004/manifest.h5")) ? 0 : 1);
  };
  EXPECT_EXIT(attempt(), testing::ExitedWithCode(0),
              "^step 2: cannot remove .*step-00000001.tmp.removed.*\n$");
  ::chmod(in("step-00000001.tmp.removed").c_str(), 0755);
}

TEST_F(CheckpointDirectory, FailsWhereWhatCannotBeRemovedIsInTheWay) {
  ::chmod(scratch.path().c_str(), 0777);
  ::chmod(checkpoints.c_str(), 0777);
  make("step-00000005.tmp");
  ::chmod(in("step-00000005.tmp").c_str(), 0555);
  const auto attempt = [&] {
    become_nobody();
    try {
      save(5);
    } catch (const StorageError& error) {
      std::fprintf(stderr, "%s\n", error.what());
      std::exit(3);
    }
    std::exit(0);
  };
  EXPECT_EXIT(attempt(), testing::ExitedWithCode(3), "remove .*step-00000005.tmp failed");
  ::chmod(in("step-00000005.tmp").c_str(), 0755);
}

TEST_F(CheckpointDirectory, IsRefusedAmongFilesOfOthers) {
  EXPECT_EQ(refusal(), "") << "empty";
  fs::create_directory(in("step-00000500"));  // from another trainer
  EXPECT_THAT(refusal(), AllOf(HasSubstr("error: checkpoint.directory: "),
                               HasSubstr(", such as step-00000500."),
                               HasSubstr(checkpoints + "/checkpoints")));
  fs::remove(in("step-00000500"));
  for (const char* text : {"", "locked by emacs\n"}) {
    test::write_bytes(in("lock"), text);
    test::write_bytes(in("thesis.txt"), "x");
    EXPECT_THAT(refusal(), HasSubstr("thesis.txt")) << text;
  }
}

TEST_F(CheckpointDirectory, IsTakenWhereTriremeHasUsedIt) {
  test::write_bytes(in("notes.txt"), "mine");
  for (const auto& [name, text] :
       {std::pair("lock", "process 4711 on node07\n"), std::pair("latest", "step-00000005\n")}) {
    test::write_bytes(in(name), text);
    EXPECT_EQ(refusal(), "") << name;
    fs::remove(in(name));
  }
  save(1);
  fs::remove(in("latest"));
  EXPECT_EQ(refusal(), "") << "a checkpoint alone";
}

}  // namespace
}  // namespace trireme::record
