// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <sys/stat.h>

#include "files/descriptor.hpp"
#include "files/storage_error.hpp"

#include "support/scratch_directory.hpp"

namespace trireme::files {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

TEST(InputFile, ReadsByPosition) {
  const test::ScratchDirectory directory;
  test::write_bytes(directory / "file", "0123456789");
  const InputFile file(directory / "file");
  EXPECT_EQ(file.size(), 10);
  std::array<char, 4> room{};
  file.read(3, std::as_writable_bytes(std::span(room)));
  EXPECT_EQ(std::string(room.data(), 4), "3456");
  EXPECT_EQ(file.read_some(8, std::as_writable_bytes(std::span(room))), 2U);
  EXPECT_EQ(file.read_some(20, std::as_writable_bytes(std::span(room))), 0U);
  EXPECT_EQ(read_whole(directory / "file"), "0123456789");
}

TEST(InputFile, WhatIsNoFileIsRefusedAtOnceAndNamed) {
  const test::ScratchDirectory directory;
  fs::create_directory(directory / "folder");
  ASSERT_EQ(::mkfifo((directory / "fifo").c_str(), 0600), 0);
  EXPECT_THAT(storage_error([&] { InputFile{directory / "folder"}; }),
              HasSubstr("folder failed: a directory is in the place of a file"));
  EXPECT_THAT(storage_error([&] { InputFile{directory / "fifo"}; }), HasSubstr("a FIFO is in"));
  EXPECT_THAT(storage_error([&] { InputFile{"/dev/zero"}; }), HasSubstr("a device is in"));
  EXPECT_THAT(storage_error([&] { read_whole(directory / "missing"); }),
              HasSubstr("No such file or directory"));
}

TEST(InputFile, AFileThatIsCutIsAnErrorWithItsName) {
  const test::ScratchDirectory directory;
  test::write_bytes(directory / "file", std::string(10'000, 'x'));
  const InputFile file(directory / "file");
  fs::resize_file(directory / "file", 100);
  std::array<std::byte, 64> room{};
  file.read(0, room);
  EXPECT_THAT(
      storage_error([&] { file.read(90, room); }),
      testing::AllOf(HasSubstr(directory / "file"), HasSubstr("it has 100 bytes and had 10000")));
}

TEST(InputFile, FilesOfProcHaveTheirText) {
  EXPECT_THAT(read_whole("/proc/self/status"), HasSubstr("Name:"));
}

}  // namespace
}  // namespace trireme::files
