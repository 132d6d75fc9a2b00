// SPDX-License-Identifier: Apache-2.0
#include "record/run/run_requests.hpp"

#include <filesystem>
#include <fstream>
#include <future>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/error.hpp"

#include "comm/control/world.hpp"

#include "support/scratch_directory.hpp"

namespace trireme::record {
namespace {

TEST(RunRequests, ReachTheRunOnceAndLeaveNoFile) {
  const test::ScratchDirectory scratch;
  const auto world = comm::make_self_world();
  const RunDirectory directory(scratch.path() + "/run", *world);
  for (const RunRequest request : {RunRequest::save, RunRequest::stop, RunRequest::stop_now}) {
    std::promise<RunRequest> asked;
    const RunRequests requests(directory.path(), [&](RunRequest one) { asked.set_value(one); });
    EXPECT_THAT(ask_run(directory.path(), request), testing::HasSubstr("process "));
    EXPECT_EQ(asked.get_future().get(), request);
    EXPECT_FALSE(std::filesystem::exists(directory.file(file_of(request))));
  }
}

TEST(RunRequests, WhileTheRunStartsWaitForIt) {
  const test::ScratchDirectory scratch;
  const auto world = comm::make_self_world();
  const RunDirectory directory(scratch.path(), *world);
  ask_run(directory.path(), RunRequest::stop);
  std::promise<RunRequest> asked;
  const RunRequests requests(directory.path(), [&](RunRequest one) { asked.set_value(one); });
  EXPECT_EQ(asked.get_future().get(), RunRequest::stop);
}

TEST(RunRequests, OfAnEarlierRunAreRemovedAndOtherFilesStay) {
  const test::ScratchDirectory scratch;
  const auto world = comm::make_self_world();
  for (const char* name : {"/stop.request", "/stop.request.txt", "/my-stop.request"})
    std::ofstream(scratch.path() + name) << "x";
  {
    const RunDirectory checkpoints(scratch.path(), *world, "checkpoint.directory");
    EXPECT_TRUE(std::filesystem::exists(scratch.path() + "/stop.request"));
  }
  world->lost = "rank 2 on north";
  {
    const RunDirectory again(scratch.path(), *world);
    EXPECT_TRUE(std::filesystem::exists(scratch.path() + "/stop.request"));
  }
  world->lost = "";
  const RunDirectory directory(scratch.path(), *world);
  EXPECT_FALSE(std::filesystem::exists(scratch.path() + "/stop.request"));
  EXPECT_TRUE(std::filesystem::exists(scratch.path() + "/stop.request.txt"));
  EXPECT_TRUE(std::filesystem::exists(scratch.path() + "/my-stop.request"));
}

/// Changes the user of this thread, and of those that it will start. seteuid() changes all threads,
/// and the one that looks for requests could look while it is root.
long become(uid_t user) {
  return syscall(SYS_setresuid, -1, user, -1);
}

TEST(RunRequests, OfAnotherUserInAStickyDirectoryReachTheRunOnceEach) {
  if (geteuid() != 0)
    GTEST_SKIP() << "only root can be several users";
  const test::ScratchDirectory scratch;
  const std::string path = scratch.path() + "/stop.request";
  std::filesystem::permissions(scratch.path(), std::filesystem::perms{01777});
  ASSERT_EQ(become(65534), 0);
  {
    std::promise<void> stopped, saved, again;
    int stops = 0;
    const RunRequests requests(scratch.path(), [&](RunRequest one) {
      if (one == RunRequest::save)
        saved.set_value();
      else
        (++stops == 1 ? stopped : again).set_value();  // a third time throws
    });
    ASSERT_EQ(become(0), 0);
    std::ofstream(path) << "x";
    ASSERT_EQ(become(65534), 0);
    stopped.get_future().get();
    std::ofstream(scratch.path() + "/save.request") << "x";  // is looked for later than the other
    saved.get_future().get();
    EXPECT_EQ(stops, 1);
    ASSERT_EQ(become(0), 0);
    std::filesystem::last_write_time(path, std::filesystem::file_time_type::clock::now());
    ASSERT_EQ(become(65534), 0);
    again.get_future().get();
  }
  EXPECT_THROW(remove_requests(scratch.path()), StorageError);
  ASSERT_EQ(become(0), 0);
  EXPECT_TRUE(std::filesystem::exists(path));
}

TEST(RunRequests, NeedARunThatIsGoingOn) {
  const test::ScratchDirectory scratch;
  EXPECT_THROW(ask_run(scratch.path(), RunRequest::stop), UserError);
  {
    const auto world = comm::make_self_world();
    const RunDirectory directory(scratch.path(), *world);
  }
  EXPECT_THROW(ask_run(scratch.path(), RunRequest::stop), UserError);
  EXPECT_FALSE(std::filesystem::exists(scratch.path() + "/stop.request"));
  std::filesystem::create_symlink("loop", scratch / "loop");  // the system cannot tell
  EXPECT_THROW(ask_run(scratch / "loop", RunRequest::stop), StorageError);
}

}  // namespace
}  // namespace trireme::record
