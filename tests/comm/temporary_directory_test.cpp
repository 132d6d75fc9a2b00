// SPDX-License-Identifier: Apache-2.0
#include "comm/control/temporary_directory.hpp"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <list>
#include <optional>
#include <string>
#include <thread>

#include <gtest/gtest.h>

namespace trireme::comm {
namespace {

namespace fs = std::filesystem;

/// Exits with 0 if remove_all() removes `parent`, which this process made, while another thread
/// creates directories in it for as long as it can.
[[noreturn]] void end_while_more_are_made(const std::string& parent) {
  std::atomic<int> made{0};
  std::thread([&] {
    const auto world = make_self_world();
    std::list<TemporaryDirectory> all;
    for (; made < 100'000; ++made) all.emplace_back(*world, parent);
  }).detach();
  while (made < 20) std::this_thread::yield();
  TemporaryDirectory::remove_all();
  for (int i = 0; i < 10'000; ++i) std::this_thread::yield();
  std::_Exit(fs::exists(parent) ? 1 : 0);
}

TEST(TemporaryDirectory, IsNotMadeAfterTheLastOnesAreRemoved) {
  const auto world = make_self_world();
  const TemporaryDirectory parent(*world);
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(end_while_more_are_made(parent.path()), ::testing::ExitedWithCode(0), "");
}

TEST(TemporaryDirectory, IsRemovedWhileAThreadStillMakesAndRenamesFilesInIt) {
  constexpr int files = 3000;
  const auto world = make_self_world();
  std::optional<TemporaryDirectory> directory(*world);
  const std::string path = directory->path();
  std::atomic<int> made{0};
  std::thread writer([&] {
    for (; made < files; ++made) {
      const std::string file = path + "/" + std::to_string(made);
      std::ofstream(file + ".new") << made;
      std::rename((file + ".new").c_str(), file.c_str());
    }
  });
  while (made < files / 100) std::this_thread::yield();
  directory.reset();
  EXPECT_FALSE(fs::exists(path)) << made << " files were made until then";
  writer.join();
  EXPECT_FALSE(fs::exists(path));
}

TEST(TemporaryDirectory, NamesTheVariableWithoutADirectory) {
  const auto world = make_self_world();
  const auto use = [&] {
    ::unsetenv("TMPDIR");
    ::setenv("TMP", "/dev/null/tmp", 1);
    try {
      const TemporaryDirectory directory(*world);
    } catch (const StorageError& error) {
      std::fprintf(stderr, "%s\n", error.what());
      std::exit(3);
    }
    std::exit(0);
  };
  EXPECT_EXIT(use(), ::testing::ExitedWithCode(3),
              "use TMP=/dev/null/tmp for temporary files failed: .*Set TMPDIR to a directory");
}

}  // namespace
}  // namespace trireme::comm
