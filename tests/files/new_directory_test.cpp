// SPDX-License-Identifier: Apache-2.0
#include "files/new_directory.hpp"

#include <filesystem>
#include <iterator>
#include <string>

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "files/output_file.hpp"

#include "support/child_process.hpp"
#include "support/scratch_directory.hpp"

namespace trireme::files {
namespace {

namespace fs = std::filesystem;

std::ptrdiff_t entries_of(const std::string& directory) {
  return std::distance(fs::directory_iterator(directory), {});
}

TEST(NewDirectory, AppearsWholeOrNotAtAll) {
  const test::ScratchDirectory scratch;
  {
    NewDirectory made(scratch / "a/b/");
    made.write("one", "1");
    EXPECT_FALSE(fs::exists(scratch / "a/b"));
    made.commit();
  }
  EXPECT_EQ(test::bytes_of(scratch / "a/b/one"), "1");
  EXPECT_EQ(entries_of(scratch / "a"), 1);
  {
    const NewDirectory given_up(scratch / "a/c");
    given_up.write("one", "1");
  }
  EXPECT_EQ(entries_of(scratch / "a"), 1);
}

TEST(NewDirectory, TakesAnEmptyDirectorysPlaceAndNoOther) {
  const test::ScratchDirectory scratch;
  fs::create_directory(scratch / "empty");
  NewDirectory made(scratch / "empty");
  made.write("one", "1");
  made.commit();
  EXPECT_TRUE(fs::exists(scratch / "empty/one"));
  EXPECT_THROW(NewDirectory(scratch / "empty"), UserError);
  EXPECT_THROW(NewDirectory(scratch / "empty/one"), UserError);
  fs::create_symlink("nowhere", scratch / "link");
  EXPECT_THROW(NewDirectory(scratch / "link"), UserError);
}

TEST(NewDirectory, IsRefusedBeforeTheWorkWhereItCannotBe) {
  const test::ScratchDirectory scratch;
  test::write_bytes(scratch / "file", "x");
  expect_new_directory(scratch / "a/b/c/");
  for (const char* place : {"file/a", "file/a/b"})
    EXPECT_THROW(expect_new_directory(scratch / place), UserError) << place;
}

TEST(NewDirectory, IsRefusedWhereSomebodyCameFirst) {
  const test::ScratchDirectory scratch;
  NewDirectory late(scratch / "a");
  late.write("one", "late");
  fs::create_directory(scratch / "a");
  test::write_bytes(scratch / "a/one", "first");
  EXPECT_THROW(late.commit(), UserError);
  EXPECT_EQ(test::bytes_of(scratch / "a/one"), "first");
}

TEST(NewFile, IsWrittenInPartsAndNeverOverAnother) {
  const test::ScratchDirectory scratch;
  Descriptor file = new_file(scratch / "f");
  file.write("ab");
  file.write("");
  file.write("c");
  EXPECT_EQ(file.size(), 3);
  finish(file);
  EXPECT_EQ(test::bytes_of(scratch / "f"), "abc");
  EXPECT_THROW(new_file(scratch / "f"), StorageError);
  EXPECT_THROW(write_new_file(scratch / "f", "d"), UserError);
  EXPECT_EQ(test::bytes_of(scratch / "f"), "abc");
}

TEST(NewFile, IsRemovedWhereItsDiskIsFull) {
  const test::ScratchDirectory scratch;
  const auto write = [&] { write_new_file(scratch / "f", std::string(1001, 'a')); };
  EXPECT_EXIT(test::exit_with_a_full_disk(1000, write), testing::ExitedWithCode(3),
              "File too large");
  EXPECT_FALSE(fs::exists(scratch / "f"));
}

TEST(NewFile, IsRefusedBeforeTheWorkWhereItsDirectoryIsMissing) {
  const test::ScratchDirectory scratch;
  test::write_bytes(scratch / "f", "abc");
  expect_new_file(scratch / "g");
  expect_new_file("a-name-alone");
  for (const auto& [place, reason] :
       {std::pair{"none/g", "No such file or directory"}, std::pair{"f/g", "Not a directory"}}) {
    try {
      expect_new_file(scratch / place);
      ADD_FAILURE() << place;
    } catch (const UserError& error) {
      EXPECT_EQ(error.what(), (scratch / place) + ": error: this cannot be created: " +
                                  fs::path(scratch / place).parent_path().string() + ": " + reason);
    }
  }
}

}  // namespace
}  // namespace trireme::files
