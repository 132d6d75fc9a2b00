// SPDX-License-Identifier: Apache-2.0
// checkpoint.directory: checkpoints that lie elsewhere, reached by a link.
#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"

#include "record/checkpoint/checkpoint_directory.hpp"
#include "record/checkpoint_cases.hpp"

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
