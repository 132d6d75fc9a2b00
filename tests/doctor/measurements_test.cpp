// SPDX-License-Identifier: Apache-2.0
#include "doctor/measurements.hpp"

#include <filesystem>
#include <utility>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/error.hpp"

#include "support/scratch_directory.hpp"

namespace trireme::doctor {
namespace {

TEST(Measurements, OfAFileSystemLeaveNothing) {
  const test::ScratchDirectory scratch;
  const FileSystem files = measure_file_system("here", scratch.path());
  EXPECT_EQ(files.host, "here");
  EXPECT_EQ(files.directory, scratch.path());
  EXPECT_FALSE(files.type.empty());
  EXPECT_GT(files.free_bytes, 0);
  EXPECT_GT(files.write_bytes_per_s, 0);
  EXPECT_GT(files.sync_seconds, 0);
  EXPECT_TRUE(std::filesystem::is_empty(scratch.path()));
}

TEST(Measurements, NeedAnExistingDirectory) {
  const test::ScratchDirectory scratch;
  test::write_bytes(scratch / "file", "x");
  for (const auto& [name, why] :
       {std::pair("none", "No such file or directory"), std::pair("file", "Not a directory")}) {
    const std::string path = scratch / name;
    try {
      measure_file_system("here", path);
      FAIL() << "no error";
    } catch (const UserError& error) {
      EXPECT_EQ(error.what(), fmt::format("error: create a file in {}: {}", path, why));
    }
  }
}

TEST(Measurements, OfMemoryAreOfEveryRank) {
  const auto world = comm::make_self_world();
  const auto rates = memory_bandwidth(*world, 1);
  ASSERT_EQ(rates.size(), 1U);
  EXPECT_GT(rates[0], 1e7);
  EXPECT_LT(rates[0], 1e13);
}

}  // namespace
}  // namespace trireme::doctor
