// SPDX-License-Identifier: Apache-2.0
// checkpoint.directory: checkpoints in another place, reached through a link.
#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"

#include "record/checkpoint/checkpoint_directory.hpp"
#include "record/checkpoint_cases.hpp"
#include "record/run/run_directory.hpp"

#include "support/scratch_directory.hpp"

namespace trireme::record {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

struct Elsewhere : testing::Test {
  void SetUp() override {
    fs::create_directory(run);
    fs::create_directory(target);
  }
  [[nodiscard]] std::string refusal(const std::string& directory) const {
    try {
      expect_place_of_checkpoints(run, directory);
      link_checkpoints(run, directory);
    } catch (const UserError& error) {
      return error.what();
    }
    return "linked";
  }
  test::ScratchDirectory scratch;
  const std::string run = scratch / "run", target = scratch / "scratch-disk";
};

TEST_F(Elsewhere, CheckpointsAreWrittenAndFoundThroughTheLink) {
  link_checkpoints(run, target);
  link_checkpoints(run, target + "/../scratch-disk");  // the same place again
  const auto world = comm::make_self_world();
  save_small(run, 5, *world);
  EXPECT_TRUE(fs::exists(target + "/step-00000005/manifest.h5"));
  EXPECT_EQ(newest_checkpoint(run)->step, 5);
  EXPECT_EQ(load_small(newest_checkpoint(run)->directory, *world).step, 5);
}

TEST_F(Elsewhere, CheckpointsOfAnotherRunAreRefusedWithAndWithoutTheKey) {
  const auto world = comm::make_self_world();
  const auto refused = [](const std::string& directory, const std::string& elsewhere) {
    try {
      expect_own_checkpoints(directory, elsewhere);
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refused(run, target), "") << "there are none yet";
  RunDirectory owner(run, *world);
  owner.set_id("0123456789abcdef");
  link_checkpoints(run, target);
  save_small(run, 5, *world);
  EXPECT_EQ(refused(run, target), "");
  EXPECT_EQ(refused(run, ""), "");

  const std::string other = scratch / "other", copy = scratch / "copy", moved = scratch / "moved";
  fs::create_directory(other);
  EXPECT_THAT(refused(other, target), HasSubstr("no run was here"));
  EXPECT_THAT(refused(scratch / "not-yet", target), HasSubstr("no run was here"));
  link_checkpoints(other, target);  // as left by an older start
  EXPECT_THAT(refused(other, ""), HasSubstr("no run was here"));

  fs::copy(run, copy, fs::copy_options::recursive | fs::copy_options::copy_symlinks);
  for (const std::string& elsewhere : {target, std::string()})
    EXPECT_THAT(refused(copy, elsewhere),
                HasSubstr("this is a copy of " + fs::canonical(run).string()));
  fs::rename(run, moved);
  EXPECT_EQ(refused(moved, target), "");
  EXPECT_EQ(refused(copy, ""), "") << "the original is not there";
}

TEST_F(Elsewhere, AnEmptyDirectoryGivesWayAndCheckpointsDoNot) {
  fs::create_directory(run + "/checkpoints");
  EXPECT_EQ(refusal(target), "linked");
  fs::remove(run + "/checkpoints");

  const auto world = comm::make_self_world();
  save_small(run, 5, *world);
  EXPECT_THAT(refusal(target), HasSubstr(run + "/checkpoints is not empty: move what is in it"));
  EXPECT_EQ(newest_checkpoint(run)->step, 5);
}

TEST_F(Elsewhere, ALinkToAnotherPlaceIsRefused) {
  fs::create_directory(scratch / "other");
  link_checkpoints(run, scratch / "other");
  EXPECT_THAT(refusal(target), HasSubstr("does not lead to " + target));
  fs::remove(scratch / "other");  // not mounted
  EXPECT_EQ(refusal(scratch / "other"), "linked");
  EXPECT_EQ(fs::read_symlink(run + "/checkpoints"), fs::canonical(scratch.path()) / "other");
}

TEST_F(Elsewhere, TheRunDirectoryIsNoPlaceAndItsCheckpointsAre) {
  for (const char* same : {"", "/", "/.", "/x/.."})
    EXPECT_THAT(refusal(run + same), HasSubstr("this is run.directory itself"));
  fs::create_directory(run + "/checkpoints");
  EXPECT_EQ(refusal(run + "/checkpoints"), "linked");
  EXPECT_FALSE(fs::is_symlink(run + "/checkpoints"));
}

}  // namespace
}  // namespace trireme::record
