// SPDX-License-Identifier: Apache-2.0
#include "h5/file.hpp"

#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"

#include "h5/attribute.hpp"
#include "h5/dataset.hpp"
#include "h5/raw_file.hpp"

#include "support/child_process.hpp"
#include "support/scratch_directory.hpp"

namespace trireme::h5 {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const StorageError& error) {
    return error.what();
  }
  return "no StorageError";
}

TEST(File, IsCreatedOnceAndOpensAgain) {
  const test::ScratchDirectory scratch;
  const std::string path = scratch / "a.h5";
  {
    File file = create_file(path);
    write_attribute(file.get(), "answer", std::int64_t{42});
    close(std::move(file));
  }
  EXPECT_EQ(probe(path), Probe::whole);
  EXPECT_EQ(read_attribute<std::int64_t>(open_file(path, Access::read).get(), "answer"), 42);
  EXPECT_THAT(message_of([&] { create_file(path); }), HasSubstr("exists"));
  EXPECT_EQ(read_attribute<std::int64_t>(open_file(path, Access::read).get(), "answer"), 42)
      << "a refused create leaves the file alone";
}

TEST(File, NamesTheStatementTheReasonAndTheFileOnFailure) {
  const test::ScratchDirectory scratch;
  EXPECT_THAT(message_of([&] { open_file(scratch / "none.h5", Access::read); }),
              AllOf(HasSubstr("HDF5: H5Fopen("), HasSubstr("No such file or directory"),
                    HasSubstr(scratch / "none.h5"), HasSubstr("h5/file.cpp:")));
}

TEST(File, PrintsNothingOfItsOwn) {
  const test::ScratchDirectory scratch;
  testing::internal::CaptureStderr();
  message_of([&] { open_file(scratch / "none.h5", Access::read); });
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(Probe, TellsTheKindsApart) {
  const test::ScratchDirectory scratch;
  EXPECT_EQ(probe(scratch / "absent.h5"), Probe::absent);
  test::write_bytes(scratch / "text.h5", "this is no HDF5 file at all");
  EXPECT_EQ(probe(scratch / "text.h5"), Probe::not_hdf5);
  test::write_bytes(scratch / "empty.h5", "");
  EXPECT_EQ(probe(scratch / "empty.h5"), Probe::not_hdf5);
  EXPECT_EQ(probe(scratch.path()), Probe::unreadable) << "a directory";
  {
    File file = create_file(scratch / "whole.h5");
    auto data = Dataset::create_extendible(file.get(), "x", type_of<double>(), 64);
    data.append<double>(std::vector<double>(1000, 1.0));
  }
  EXPECT_EQ(probe(scratch / "whole.h5"), Probe::whole);
  std::filesystem::resize_file(scratch / "whole.h5", 900);
  EXPECT_EQ(probe(scratch / "whole.h5"), Probe::damaged);
}

TEST(File, IsReadableWhileAnotherProcessWritesItAndAfterThatProcessWasKilled) {
  const test::ScratchDirectory scratch;
  const std::string path = scratch / "live.h5";
  File file;
  std::optional<Dataset> growing;
  test::DoomedChild child([&] {
    file = create_file(path);
    growing = Dataset::create_extendible(file.get(), "x", type_of<double>(), 64);
    growing->append<double>(std::vector<double>{1, 2, 3});
    flush(file);
    growing->append<double>(std::vector<double>{4});
  });
  EXPECT_EQ(Dataset::open(open_file(path, Access::read).get(), "x").read_all<double>(),
            (std::vector<double>{1, 2, 3}));
  child.kill();
  File again = open_file(path, Access::read_write);
  Dataset data = Dataset::open(again.get(), "x");
  data.append<double>(std::vector<double>{9});
  EXPECT_EQ(data.read_all<double>(), (std::vector<double>{1, 2, 3, 9}));
}

TEST(Turns, LetThreadsWorkOnTheirOwnFilesAtTheSameTime) {
  const test::ScratchDirectory scratch;
  const auto fill = [&](const std::string& name, double value) {
    for (int round = 0; round < 20; ++round) {
      File file = create_file(scratch / (name + std::to_string(round)));
      {  // goes before its file does
        auto data = Dataset::create_extendible(file.get(), "a", type_of<double>(), 64);
        for (int i = 0; i < 20; ++i) data.append<double>(std::vector<double>{value});
        write_attribute(data.id(), "of", name);
      }
      EXPECT_THAT(message_of([&] { Dataset::open(file.get(), "none"); }), HasSubstr("none"));
      close(std::move(file));
    }
  };
  {
    const std::jthread other([&] { fill("x", 1.5); });
    fill("y", 2.5);
  }
  for (const char* name : {"x", "y"}) {
    const File file = open_file(scratch / (name + std::string("19")), Access::read);
    const Dataset data = Dataset::open(file.get(), "a");
    EXPECT_EQ(data.read_all<double>(), std::vector<double>(20, *name == 'x' ? 1.5 : 2.5));
    EXPECT_EQ(read_attribute<std::string>(data.id(), "of"), name);
  }
}

TEST(RawFile, WritesWhereHdf5ReservedTheSpace) {
  const test::ScratchDirectory scratch;
  const std::string path = scratch / "a.h5";
  const std::vector<float> values = {1, 2, 3, 4, 5};
  std::int64_t offset = 0;
  {
    File file = create_file(path);
    offset = Dataset::create_fixed(file.get(), "x", type_of<float>(), 5).file_offset();
    close(std::move(file));
  }
  RawFile raw(path);
  raw.write(offset, std::as_bytes(std::span(values)).first(8));
  raw.write(offset + 8, std::as_bytes(std::span(values)).subspan(8));
  raw.sync();
  EXPECT_EQ(Dataset::open(open_file(path, Access::read).get(), "x").read_all<float>(), values);
  EXPECT_THAT(message_of([&] { RawFile(scratch / "none"); }), HasSubstr("No such file"));
}

TEST(RawFile, HoldsTheSameBytesWhateverIsAligned) {
  const test::ScratchDirectory scratch;
  constexpr std::size_t page = RawFile::page_bytes;
  std::vector<std::byte> memory(9 * page);
  for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<std::byte>(i * 31 % 251);
  void* start = memory.data();
  std::size_t room = memory.size();
  const auto* aligned = static_cast<const std::byte*>(std::align(page, 1, start, room));
  std::string expected(6 * page, '-');
  test::write_bytes(scratch / "a", expected);
  RawFile file(scratch / "a");
  // Whole pages; whole pages and a rest; the wrong address; the wrong place in the file.
  const auto put = [&](std::size_t offset, std::span<const std::byte> bytes) {
    file.write(static_cast<std::int64_t>(offset), bytes);
    std::memcpy(expected.data() + offset, bytes.data(), bytes.size());
  };
  put(0, {aligned, 2 * page});
  put(2 * page, {aligned + page, page + 100});
  put(4 * page, {aligned + 1, page});
  put(5 * page + 7, {aligned, page - 7});
  file.sync();
  EXPECT_EQ(test::bytes_of(scratch / "a"), expected);
  std::string back(expected.size(), ' ');
  file.read(0, std::as_writable_bytes(std::span(back)));
  EXPECT_EQ(back, expected);
}

TEST(Groups, AreMadeWithTheirParents) {
  const test::ScratchDirectory scratch;
  const File file = create_file(scratch / "a.h5");
  EXPECT_FALSE(exists(file.get(), "a/b/c"));
  open_group(file.get(), "a/b/c");
  EXPECT_TRUE(exists(file.get(), "a/b/c"));
  EXPECT_FALSE(exists(file.get(), "a/c"));
  open_group(file.get(), "a/b/c");
}

TEST(Directories, AreMadeWithTheirParents) {
  const test::ScratchDirectory scratch;
  make_directories(scratch / "a/b/c");
  make_directories(scratch / "a/b/c");
  write_text_file(scratch / "a/b/c/x", "y");
  EXPECT_EQ(read_text_file(scratch / "a/b/c/x"), "y");
  EXPECT_THAT(message_of([&] { make_directories(scratch / "a/b/c/x/d"); }),
              AllOf(HasSubstr("create directory"), HasSubstr("a/b/c/x")));
}

TEST(Sync, ReportsWhatIsMissing) {
  const test::ScratchDirectory scratch;
  test::write_bytes(scratch / "x", "x");
  sync_file(scratch / "x");
  sync_directory(scratch.path());
  EXPECT_THAT(message_of([&] { sync_file(scratch / "y"); }), HasSubstr("No such file"));
  EXPECT_THAT(message_of([&] { sync_directory(scratch / "x"); }), HasSubstr("Not a directory"));
}

}  // namespace
}  // namespace trireme::h5
