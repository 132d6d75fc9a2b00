// SPDX-License-Identifier: Apache-2.0
#include "record/run/run_directory.hpp"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.hpp"

#include "support/child_process.hpp"
#include "support/scratch_directory.hpp"

namespace trireme::record {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(RunDirectory, IsMadeWithItsParentsAndLocked) {
  const test::ScratchDirectory scratch;
  const auto world = comm::make_self_world();
  const RunDirectory directory(scratch / "a/b/c/", *world);
  EXPECT_EQ(directory.path(), scratch / "a/b/c");
  EXPECT_TRUE(directory.locked());
  EXPECT_TRUE(std::filesystem::is_directory(scratch / "a/b/c"));
}

TEST(RunDirectory, NoticesThatItIsNoLongerWhereItWas) {
  const test::ScratchDirectory scratch;
  const auto world = comm::make_self_world();
  RunDirectory directory(scratch / "run", *world);
  const auto complaint = [&] {
    try {
      directory.expect_in_place();
    } catch (const StorageError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(complaint(), "");
  std::filesystem::rename(scratch / "run", scratch / "elsewhere");
  EXPECT_THAT(complaint(), AllOf(HasSubstr("find run.directory " + scratch / "run"),
                                 HasSubstr("it was moved away while the run used it"),
                                 HasSubstr("what the run wrote is in " + scratch / "elsewhere")));
  std::filesystem::create_directory(scratch / "run");
  EXPECT_THAT(complaint(), HasSubstr("another one is in its place"));
  std::filesystem::remove_all(scratch / "elsewhere");
  EXPECT_THAT(complaint(), HasSubstr("it was removed while the run used it"));
}

TEST(RunDirectory, DoesNotTakeAForbiddenParentForAMove) {
  const test::ScratchDirectory scratch;
  const auto world = comm::make_self_world();
  RunDirectory directory(scratch / "parent/run", *world);
  const auto attempt = [&] {
    ::chmod((scratch / "parent").c_str(), 0);
    if (::geteuid() == 0 && ::setuid(65534) != 0)
      std::exit(1);
    try {
      directory.expect_in_place();
    } catch (const StorageError& error) {
      std::fprintf(stderr, "%s\n", error.what());
      std::exit(3);
    }
    std::exit(0);
  };
  EXPECT_EXIT(attempt(), testing::ExitedWithCode(3), "look at .*parent/run.*Permission denied");
  ::chmod((scratch / "parent").c_str(), 0755);
}

TEST(RunDirectory, RefusesAFileInTheWay) {
  const test::ScratchDirectory scratch;
  const auto world = comm::make_self_world();
  test::write_bytes(scratch / "notes", "mine");
  for (const char* path : {"notes", "notes/run"}) try {
      const RunDirectory directory(scratch / path, *world);
      FAIL() << path;
    } catch (const UserError& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr(scratch / "notes: error: a file is in the way"),
                                      HasSubstr(scratch / path)));
    }
  EXPECT_EQ(test::bytes_of(scratch / "notes"), "mine");
}

TEST(RunDirectory, RefusesASecondRunByNameUntilTheFirstEnds) {
  const test::ScratchDirectory scratch;
  const auto world = comm::make_self_world();
  std::optional<RunDirectory> first;
  test::DoomedChild child([&] { first.emplace(scratch / "run", *world); });
  try {
    const RunDirectory second(scratch / "run", *world);
    ADD_FAILURE() << "two runs in one directory";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("run: error: run.directory is in use by process " +
                                std::to_string(child.pid()) + " on " + world->host())));
  }
  child.kill();
  EXPECT_TRUE(RunDirectory(scratch / "run", *world).locked());
}

/// Holds the lock of `directory`, naming `process` on `host` in its line, until it is killed.
std::unique_ptr<test::DoomedChild> held(const std::string& directory,
                                        pid_t process,
                                        const std::string& host) {
  std::filesystem::create_directory(directory);
  std::optional<files::FileLock> lock;
  auto child = std::make_unique<test::DoomedChild>([&] {
    lock.emplace(directory + "/lock");
    static_cast<void>(lock->take_alone());
  });
  test::write_bytes(directory + "/lock", fmt::format("process {} on {}\n", process, host));
  return child;
}

pid_t ended_process() {
  test::DoomedChild child([] {});
  const pid_t process = child.pid();
  child.kill();
  return process;
}

TEST(RunDirectory, WaitsForTheLockOfAProcessThatMayHaveEnded) {
  const test::ScratchDirectory scratch;
  const auto world = comm::make_self_world();
  const auto ended = ended_process();
  for (const auto& host : {world->host(), std::string("node07")}) {
    const auto holder = held(scratch / host, ended, host);
    std::string said;
    const RunDirectory directory(scratch / host, *world, RunDirectory::run_key,
                                 {std::chrono::hours(1), [&](const std::string& line) {
                                    said = line;
                                    holder->kill();
                                  }});
    EXPECT_TRUE(directory.locked()) << host;
    EXPECT_THAT(said, HasSubstr(fmt::format("waiting for run.directory {}, for 3600 s at most: "
                                            "process {} on {} has its lock",
                                            scratch / host, ended, host)));
  }
}

TEST(RunDirectory, WaitsNoLongerThanItIsTold) {
  const test::ScratchDirectory scratch;
  const auto world = comm::make_self_world();
  const auto holder = held(scratch / "run", ended_process(), "node07");
  int told = 0;
  EXPECT_THROW(RunDirectory(scratch / "run", *world, RunDirectory::run_key,
                            {std::chrono::milliseconds(300), [&](const std::string&) { ++told; }}),
               UserError);
  EXPECT_EQ(told, 1);
}

TEST(RunDirectory, DoesNotWaitForALiveProcessOfThisHost) {
  const test::ScratchDirectory scratch;
  const auto world = comm::make_self_world();
  const auto holder = held(scratch / "run", ::getpid(), world->host());
  EXPECT_THROW(RunDirectory(scratch / "run", *world, RunDirectory::run_key,
                            {std::chrono::hours(1), [&](const std::string&) { holder->kill(); }}),
               UserError);
}

TEST(RunDirectory, RefusesASecondRunWhereTheLockFileWasDeleted) {
  const test::ScratchDirectory scratch;
  const auto world = comm::make_self_world();
  RunDirectory first(scratch / "run", *world);
  std::filesystem::remove(scratch / "run/lock");
  EXPECT_THROW(RunDirectory(scratch / "run", *world), UserError);
  first.expect_in_place();  // which creates the file again
  EXPECT_THAT(test::bytes_of(scratch / "run/lock"), HasSubstr("process "));
  try {
    const RunDirectory second(scratch / "run", *world);
    ADD_FAILURE() << "two runs in one directory";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), HasSubstr("in use by process " + std::to_string(::getpid())));
  }
}

TEST(RunDirectory, NoticesThatAnotherProcessHasTakenItsLock) {
  const test::ScratchDirectory scratch;
  const auto world = comm::make_self_world();
  RunDirectory directory(scratch / "run", *world);
  std::filesystem::remove(scratch / "run/lock");
  files::FileLock other(scratch / "run/lock");
  ASSERT_EQ(other.take_alone(), files::Taken::yes);
  other.sign("node07");
  try {
    directory.expect_in_place();
    ADD_FAILURE() << "it shares its directory";
  } catch (const StorageError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("keep the lock " + scratch / "run/lock"),
                                    HasSubstr(" on node07 has taken it")));
  }
}

TEST(RunDirectory, KeepsItsLockAsNewAsItsUse) {
  const test::ScratchDirectory scratch;
  const auto world = comm::make_self_world();
  RunDirectory directory(scratch / "run", *world);
  const std::filesystem::path lock = scratch / "run/lock";
  const auto long_ago = std::filesystem::last_write_time(lock) - std::chrono::hours(24 * 90);
  std::filesystem::last_write_time(lock, long_ago);
  directory.expect_in_place();
  EXPECT_GT(std::filesystem::last_write_time(lock), long_ago + std::chrono::hours(24));
}

TEST(RunDirectory, LeavesTheLockOfAnotherProgramAlone) {
  const test::ScratchDirectory scratch;
  const auto world = comm::make_self_world();
  test::write_bytes(scratch / "lock", "locked by emacs\n");
  EXPECT_THROW(RunDirectory(scratch.path(), *world), UserError);
  EXPECT_EQ(test::bytes_of(scratch / "lock"), "locked by emacs\n");
}

TEST(RunDirectory, NamesALinkThatLeadsNowhere) {
  const test::ScratchDirectory scratch;
  const auto world = comm::make_self_world();
  std::filesystem::create_symlink(scratch / "unmounted/run", scratch / "run");
  for (const char* path : {"run", "run/deeper"}) try {
      const RunDirectory directory(scratch / path, *world);
      ADD_FAILURE() << path;
    } catch (const StorageError& error) {
      EXPECT_THAT(error.what(), HasSubstr(scratch / "run is a link to " +
                                          scratch / "unmounted/run" + ", which does not exist"));
    }
}

TEST(RunDirectory, ReportsADirectoryThatCannotBeWritten) {
  const test::ScratchDirectory scratch;
  const auto world = comm::make_self_world();
  std::filesystem::create_directory(scratch / "run");
  ::chmod(scratch.path().c_str(), 0755);
  ::chmod((scratch / "run").c_str(), 0555);
  const auto attempt = [&](const std::string& path) {
    if (::geteuid() == 0 && ::setuid(65534) != 0)  // root may write anywhere: be another user
      std::exit(1);
    try {
      const RunDirectory directory(path, *world);
    } catch (const StorageError& error) {
      std::fprintf(stderr, "%s\n", error.what());
      std::exit(3);
    }
    std::exit(0);
  };
  EXPECT_EXIT(attempt(scratch / "run"), testing::ExitedWithCode(3),
              "file system: write into run.directory.*Permission denied");
  EXPECT_EXIT(attempt(scratch / "run/deeper"), testing::ExitedWithCode(3),
              "file system: create directory .*Permission denied");
}

}  // namespace
}  // namespace trireme::record
