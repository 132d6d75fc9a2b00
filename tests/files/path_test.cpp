// SPDX-License-Identifier: Apache-2.0
#include "files/path.hpp"

#include <filesystem>

#include <gmock/gmock.h>
#include <sys/stat.h>

#include "files/descriptor.hpp"
#include "files/output_file.hpp"
#include "files/storage_error.hpp"

#include "support/scratch_directory.hpp"

namespace trireme::files {
namespace {

using testing::HasSubstr;

TEST(Directories, AreMadeWithTheirParents) {
  const test::ScratchDirectory scratch;
  make_directories(scratch / "a/b/c");
  make_directories(scratch / "a/b/c");
  write_file(scratch / "a/b/c/x", "y");
  EXPECT_EQ(read_whole(scratch / "a/b/c/x"), "y");
  EXPECT_THAT(storage_error([&] { make_directories(scratch / "a/b/c/x/d"); }),
              testing::AllOf(HasSubstr("create directory"), HasSubstr("a/b/c/x")));
}

TEST(Exists, TellsALinkAndWhatCannotBeSeenFromNothing) {
  const test::ScratchDirectory scratch;
  EXPECT_TRUE(exists(scratch.path()));
  EXPECT_FALSE(exists(scratch / "x"));
  test::write_bytes(scratch / "file", "x");
  EXPECT_FALSE(exists(scratch / "file/x"));
  std::filesystem::create_symlink("loop", scratch / "loop");
  EXPECT_TRUE(exists(scratch / "loop"));
  EXPECT_THAT(storage_error([&] { exists(scratch / "loop/x"); }),
              testing::AllOf(HasSubstr("look at"), HasSubstr("loop/x")));
}

TEST(Sync, ReportsWhatIsMissing) {
  const test::ScratchDirectory scratch;
  test::write_bytes(scratch / "x", "x");
  sync_file(scratch / "x");
  sync_directory(scratch.path());
  EXPECT_THAT(storage_error([&] { sync_file(scratch / "y"); }), HasSubstr("No such file"));
  EXPECT_THAT(storage_error([&] { sync_directory(scratch / "x"); }), HasSubstr("Not a directory"));
}

TEST(OutputFile, IsWrittenInPlaceOrReplacedAndNeverAFifo) {
  const test::ScratchDirectory scratch;
  write_file(scratch / "x", "longer");
  write_file(scratch / "x", "new");
  EXPECT_EQ(read_whole(scratch / "x"), "new");
  const InputFile before(scratch / "x");
  replace_file(scratch / "x", "newest");
  EXPECT_EQ(before.size(), 3);
  EXPECT_EQ(read_whole(scratch / "x"), "newest");
  EXPECT_THAT(storage_error([&] { InputFile(scratch / "x.tmp"); }), HasSubstr("No such file"));
  ASSERT_EQ(::mkfifo((scratch / "fifo").c_str(), 0600), 0);
  EXPECT_THAT(storage_error([&] { write_file(scratch / "fifo", "x"); }), HasSubstr("a FIFO is in"));
  EXPECT_THAT(storage_error([&] { replace_file(scratch / "fifo", "x"); }),
              HasSubstr("a FIFO is in"));
}

}  // namespace
}  // namespace trireme::files
