// SPDX-License-Identifier: Apache-2.0
#include "record/also/also_files.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "record/also/row_text.hpp"

#include "support/scratch_directory.hpp"

namespace trireme::record {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr double infinity = std::numeric_limits<double>::infinity();

StepRow row(std::int64_t step, double loss = 2.5) {
  return {.step = step,
          .loss = loss,
          .grad_norm = 0.1,
          .learning_rate = 1e-5,
          .tokens = 100 * step,
          .seconds = 0.5,
          .tokens_per_s = 200,
          .flops_per_s = 1e17,
          .exposed_s = 0,
          .allocations = 0};
}

TEST(RowText, IsJsonAsPythonWritesIt) {
  EXPECT_EQ(json_line(row(3)),
            "{\"step\": 3, \"loss\": 2.5, \"bits_per_byte\": null, \"grad_norm\": 0.1, "
            "\"learning_rate\": 1e-05, \"tokens\": 300, \"seconds\": 0.5, \"tokens_per_s\": 200.0, "
            "\"flops_per_s\": 1e+17, \"exposed_s\": 0.0, \"allocations\": 0}\n");
  EXPECT_EQ(json_line(ValidationRow{0, infinity, -infinity}),
            "{\"step\": 0, \"loss\": null, \"bits_per_byte\": null}\n");
}

TEST(RowText, StepOfALineIsFoundOnlyInALineOfThisFormat) {
  EXPECT_EQ(step_of_line("{\"step\": 12, \"loss\": 1.0}"), 12);
  for (const char* other : {"", "12,1.0", "step,loss", "{\"step\": 1", "{\"loss\": 1.0}", "x12,1"})
    EXPECT_EQ(step_of_line(other), std::nullopt) << other;
}

/// A run directory with a record and its JSON lines.
class AlsoFilesTest : public testing::Test {
 protected:
  [[nodiscard]] std::string at(const std::string& name) const { return scratch_ / name; }
  [[nodiscard]] std::string text(const std::string& name) const { return test::bytes_of(at(name)); }

  RunFile begin() {
    RunFile file = RunFile::create(at("run.h5"), {});
    attach(file, 1);
    return file;
  }
  RunFile resume(std::int64_t step) {
    RunFile file = RunFile::resume(at("run.h5"), {}, step);
    attach(file, step + 1);
    return file;
  }
  void attach(RunFile& file, std::int64_t first_step) {
    file.also(std::make_unique<AlsoFiles>(scratch_.path(), file.rows(), first_step, warnings_));
  }
  static void train(RunFile& file, std::int64_t first, std::int64_t last, double loss = 2.5) {
    for (std::int64_t step = first; step <= last; ++step) {
      file.append(row(step, loss));
      if (step % 2 == 0)
        file.append_validation({step, loss + 1});
    }
  }
  /// What the text files must hold, made from run.h5.
  void expect_copies() {
    const RunFile file = RunFile::resume(at("run.h5"), {}, 1000);
    std::string steps, validation;
    for (const StepRow& one : file.rows().steps) steps += json_line(one);
    for (const ValidationRow& one : file.rows().validation) validation += json_line(one);
    EXPECT_EQ(text("steps.jsonl"), steps);
    EXPECT_EQ(text("validation.jsonl"), validation);
  }

  const test::ScratchDirectory scratch_;
  std::vector<std::string> warnings_;
};

TEST_F(AlsoFilesTest, HoldTheRowsOfTheRecord) {
  {
    RunFile file = begin();
    file.append_validation({0, 9, nan});
    train(file, 1, 5);
    file.append(row(6, nan));
    file.close();
  }
  expect_copies();
  EXPECT_THAT(text("steps.jsonl"), HasSubstr("{\"step\": 6, \"loss\": null,"));
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(AlsoFilesTest, FollowEveryFlushAndNeverRunAhead) {
  RunFile file = begin();
  train(file, 1, 3);
  EXPECT_EQ(text("steps.jsonl"), "");  // the rows wait, here as there
  file.flush();
  EXPECT_EQ(std::ranges::count(text("steps.jsonl"), '\n'), 3);
}

TEST_F(AlsoFilesTest, DropTheRowsThatTheRecordDropsAtAResume) {
  {
    RunFile file = begin();
    train(file, 1, 9);
  }
  {
    RunFile file = resume(4);
    train(file, 5, 7, 1.5);
  }
  expect_copies();
  EXPECT_EQ(std::ranges::count(text("steps.jsonl"), '\n'), 7);
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(AlsoFilesTest, PutRightWhatAKillOrAPowerCutLeft) {
  {
    RunFile file = begin();
    train(file, 1, 8);
  }
  test::write_bytes(at("steps.jsonl"), text("steps.jsonl") + "{\"step\": 9, \"lo");
  fs::remove(at("validation.jsonl"));
  test::write_bytes(at("validation.jsonl.tmp"), "half");
  {
    RunFile file = resume(8);
    train(file, 9, 10);
  }
  expect_copies();
  test::write_bytes(at("steps.jsonl"),
                    text("steps.jsonl").substr(0, 200));  // in the middle of a row
  {
    RunFile file = resume(10);
    train(file, 11, 12);
  }
  expect_copies();
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(AlsoFilesTest, BeginInTheMiddleWithAllRowsThatTheRecordHas) {
  {
    RunFile file = RunFile::create(at("run.h5"), {});
    train(file, 1, 6);
  }
  {
    RunFile file = resume(4);
    train(file, 5, 5);
  }
  expect_copies();
}

TEST_F(AlsoFilesTest, KeepEarlierRowsWhereTheRecordBeginsLater) {
  {
    RunFile file = begin();
    train(file, 1, 8);
  }
  const std::string before = text("steps.jsonl");
  fs::rename(at("run.h5"), at("run.h5.damaged-1"));
  {
    RunFile file = RunFile::create(at("run.h5"), {}, {}, 6);
    attach(file, 7);
    train(file, 7, 9, 1.5);
  }
  const std::string after = text("steps.jsonl");
  const auto kept = before.find("{\"step\": 7,");
  EXPECT_EQ(after.substr(0, kept), before.substr(0, kept));
  EXPECT_EQ(after.substr(kept),
            json_line(row(7, 1.5)) + json_line(row(8, 1.5)) + json_line(row(9, 1.5)));
  EXPECT_EQ(std::ranges::count(text("validation.jsonl"), '\n'), 4);  // 2, 4, 6 and the new 8
}

TEST_F(AlsoFilesTest, MoveAsideWhatIsNoneOfTheirs) {
  test::write_bytes(at("steps.jsonl"), "step,loss\n1,2\n");
  test::write_bytes(at("validation.jsonl"), "{\"name\": 1}\n");
  {
    RunFile file = begin();
    train(file, 1, 2);
  }
  expect_copies();
  EXPECT_EQ(text("steps.jsonl.other-1"), "step,loss\n1,2\n");
  EXPECT_EQ(text("validation.jsonl.other-1"), "{\"name\": 1}\n");
  EXPECT_THAT(warnings_,
              ElementsAre(HasSubstr("steps.jsonl.other-1"), HasSubstr("validation.jsonl.other-1")));
}

}  // namespace
}  // namespace trireme::record
