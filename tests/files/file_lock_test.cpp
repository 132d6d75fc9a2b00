// SPDX-License-Identifier: Apache-2.0
#include "files/file_lock.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.hpp"

namespace trireme::files {
namespace {

namespace fs = std::filesystem;

class FileLocks : public testing::Test {
 protected:
  FileLocks() : scratch_(make()) {}
  ~FileLocks() override { fs::remove_all(scratch_); }

  [[nodiscard]] std::string path() const { return (scratch_ / "lock").string(); }

 private:
  static fs::path make() {
    std::string name = fs::temp_directory_path() / "trireme-lock-XXXXXX";
    return ::mkdtemp(name.data());
  }
  fs::path scratch_;
};

TEST_F(FileLocks, AreForOneOrForManyWhoShare) {
  FileLock first(path()), second(path()), third(path());
  EXPECT_EQ(first.take_alone(), Taken::yes);
  EXPECT_EQ(second.take_alone(), Taken::by_another);
  EXPECT_EQ(second.share(), Taken::by_another);
  EXPECT_EQ(first.share(), Taken::yes);
  EXPECT_EQ(second.share(), Taken::yes);
  EXPECT_EQ(third.take_alone(), Taken::by_another);
  EXPECT_EQ(third.share(), Taken::yes);
}

TEST_F(FileLocks, EndWithTheirObject) {
  {
    FileLock first(path());
    ASSERT_EQ(first.take_alone(), Taken::yes);
    FileLock moved(std::move(first));
    EXPECT_EQ(FileLock(path()).take_alone(), Taken::by_another);
  }
  EXPECT_EQ(FileLock(path()).take_alone(), Taken::yes);
}

TEST_F(FileLocks, EndWithTheirProcess) {
  FileLock lock(path());
  const pid_t child = ::fork();
  if (child == 0) {
    FileLock its_own(path());
    ::_exit(its_own.take_alone() == Taken::yes ? 0 : 1);
  }
  int status = 1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(lock.take_alone(), Taken::yes);
}

TEST_F(FileLocks, NameWhoSignedLast) {
  FileLock lock(path());
  EXPECT_EQ(lock.holder("unknown"), "unknown");
  std::ofstream(path()) << "process 1 on a host with a very long name\n";
  EXPECT_EQ(lock.holder("unknown"), "process 1 on a host with a very long name");
  lock.sign("node07");
  EXPECT_EQ(lock.holder("unknown"), "process " + std::to_string(::getpid()) + " on node07");
}

TEST_F(FileLocks, SignTheBeginningOfALineButNoOtherText) {
  for (const auto& [text, ours] :
       {std::pair("proc", true), {"", true}, {"processor", false}, {"my notes", false}}) {
    std::ofstream(path(), std::ios::trunc) << text;
    FileLock lock(path());
    if (ours) {
      lock.sign("node07");
      EXPECT_NE(lock.holder("").find("on node07"), std::string::npos) << text;
    } else {
      EXPECT_THROW(lock.sign("node07"), UserError) << text;
    }
  }
}

TEST_F(FileLocks, LetTheUmaskDecideWhoMayTakeThem) {
  const mode_t before = ::umask(002);
  const FileLock lock(path());
  ::umask(before);
  EXPECT_EQ(fs::status(path()).permissions(), fs::perms(0664));
}

TEST_F(FileLocks, NoticeThatTheirFileWasReplaced) {
  const FileLock lock(path());
  EXPECT_TRUE(lock.in_place());
  fs::remove(path());
  EXPECT_FALSE(lock.in_place());
  const FileLock other(path());
  EXPECT_FALSE(lock.in_place());
  EXPECT_TRUE(other.in_place());
}

TEST_F(FileLocks, WithoutADirectoryAreAStorageError) {
  EXPECT_THROW(FileLock(path() + "/in/nothing"), StorageError);
}

}  // namespace
}  // namespace trireme::files
