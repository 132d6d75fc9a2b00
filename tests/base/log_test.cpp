// SPDX-License-Identifier: Apache-2.0
#include "base/log.hpp"

#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.hpp"
#include "base/error_line.hpp"

#include "support/scratch_directory.hpp"

namespace trireme {
namespace {

using testing::HasSubstr;
using testing::Not;

class LogTest : public testing::Test {
 protected:
  [[nodiscard]] std::string path() const { return (folder_ / "run.log").string(); }
  [[nodiscard]] std::string text() const {
    std::ifstream file(path());
    return {std::istreambuf_iterator<char>(file), {}};
  }

  const test::ScratchDirectory scratch_;
  const std::filesystem::path folder_ = scratch_.path();
};

TEST_F(LogTest, TheFirstRankPrintsEverything) {
  testing::internal::CaptureStdout();
  Log log(true, "rank 0 here");
  log.also_to_file(path());
  log.info("step {}", 7);
  const std::string shown = testing::internal::GetCapturedStdout();
  EXPECT_THAT(shown, HasSubstr("step 7\n"));
  EXPECT_THAT(text(), HasSubstr("step 7"));
}

TEST_F(LogTest, ControlCharactersAreSpelled) {
  testing::internal::CaptureStdout();
  Log log(true, "rank 0 here");
  log.also_to_file(path());
  log.info("the run {} begins", "\x1b]0;x\x07");
  EXPECT_THAT(testing::internal::GetCapturedStdout(), HasSubstr("the run \\x1b]0;x\\x07 begins\n"));
  EXPECT_THAT(text(), HasSubstr("the run \\x1b]0;x\\x07 begins\n"));
}

TEST_F(LogTest, TheOtherRanksPrintWarningsAndErrorsWithTheirName) {
  testing::internal::CaptureStdout();
  Log log(false, "rank 3 node07");
  log.also_to_file(path());
  log.info("step {}", 7);
  log.warning("low on cores");
  log.error("lost");
  const std::string shown = testing::internal::GetCapturedStdout();
  EXPECT_THAT(shown, Not(HasSubstr("step")));
  EXPECT_THAT(shown, HasSubstr("[rank 3 node07] warning: low on cores\n"));
  EXPECT_THAT(shown, HasSubstr("[rank 3 node07] error: lost\n"));
  EXPECT_FALSE(std::filesystem::exists(path()));
}

TEST_F(LogTest, IsAtWorkWhileItWritesTheFile) {
  testing::internal::CaptureStdout();
  Log log(true, "");
  std::vector<std::string> seen;
  log.also_to_file(path(), [&] {
    seen.push_back(text());
    return std::shared_ptr<void>(nullptr, [&](void*) { seen.push_back(text()); });
  });
  log.info("a line");
  testing::internal::GetCapturedStdout();
  EXPECT_THAT(seen, testing::ElementsAre("", HasSubstr("a line\n")));
}

TEST_F(LogTest, AppendsToTheLogOfAnEarlierRun) {
  testing::internal::CaptureStdout();
  for (const char* run : {"first", "second"}) {
    Log log(true, "");
    log.also_to_file(path());
    log.info("{}", run);
  }
  testing::internal::GetCapturedStdout();
  EXPECT_THAT(text(), HasSubstr("first"));
  EXPECT_THAT(text(), HasSubstr("second"));
}

TEST_F(LogTest, ALogThatCannotBeWrittenIsTheEnvironmentsFault) {
  std::ofstream(folder_ / "file") << "x";
  Log log(true, "");
  EXPECT_THROW(log.also_to_file((folder_ / "file" / "run.log").string()), StorageError);
}

/// A datagram socket keeps separate writes separate.
TEST(ErrorLine, IsWrittenInOnePiece) {
  std::array<int, 2> ends{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends.data()), 0);
  const int before = dup(STDERR_FILENO);
  dup2(ends[0], STDERR_FILENO);
  error_line("[rank {} {}] error: {}", 3, "node07", std::string(1000, 'x'));
  dup2(before, STDERR_FILENO);
  std::array<char, 4096> got{};
  const auto bytes = recv(ends[1], got.data(), got.size(), MSG_DONTWAIT);
  for (const int descriptor : {before, ends[0], ends[1]}) close(descriptor);
  ASSERT_GT(bytes, 0);
  EXPECT_EQ(std::string(got.data(), static_cast<std::size_t>(bytes)),
            "[rank 3 node07] error: " + std::string(1000, 'x') + "\n");
}

}  // namespace
}  // namespace trireme
