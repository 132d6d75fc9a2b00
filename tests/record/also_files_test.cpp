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

#include "record/also/event_file.hpp"
#include "record/also/row_text.hpp"

#include "support/scratch_directory.hpp"

namespace trireme::record {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr double infinity = std::numeric_limits<double>::infinity();
const std::vector<AlsoFormat> all_formats = {AlsoFormat::jsonl, AlsoFormat::csv,
                                             AlsoFormat::tensorboard};

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

TEST(RowText, IsCsvWithTheWordsOfItsReaders) {
  EXPECT_EQ(csv_header(StepRow{}),
            "step,loss,bits_per_byte,grad_norm,learning_rate,tokens,seconds,tokens_per_s,"
            "flops_per_s,exposed_s,allocations\n");
  EXPECT_EQ(csv_line(row(3, -infinity)), "3,-inf,nan,0.1,1e-05,300,0.5,200.0,1e+17,0.0,0\n");
  EXPECT_EQ(csv_header(ValidationRow{}), "step,loss,bits_per_byte\n");
  EXPECT_EQ(csv_line(ValidationRow{7, 0.1 + 0.2, infinity}), "7,0.30000000000000004,inf\n");
}

TEST(RowText, StepOfALineIsFoundInBothFormatsAndNowhereElse) {
  EXPECT_EQ(step_of_line("{\"step\": 12, \"loss\": 1.0}"), 12);
  EXPECT_EQ(step_of_line("12,1.0"), 12);
  for (const char* other : {"", "12", "step,loss", "{\"step\": 1", "{\"loss\": 1.0}", "x12,1"})
    EXPECT_EQ(step_of_line(other), std::nullopt) << other;
}

/// A run directory with a record and all copies of it.
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
    file.also(std::make_unique<AlsoFiles>(scratch_.path(), all_formats, file.rows(), first_step,
                                          warnings_));
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
    std::string json, csv = csv_header(StepRow{}), json_few, csv_few = csv_header(ValidationRow{});
    for (const StepRow& one : file.rows().steps) {
      json += json_line(one);
      csv += csv_line(one);
    }
    for (const ValidationRow& one : file.rows().validation) {
      json_few += json_line(one);
      csv_few += csv_line(one);
    }
    EXPECT_EQ(text("steps.jsonl"), json);
    EXPECT_EQ(text("steps.csv"), csv);
    EXPECT_EQ(text("validation.jsonl"), json_few);
    EXPECT_EQ(text("validation.csv"), csv_few);
  }
  /// Event files in the order in which they are read.
  [[nodiscard]] std::vector<std::string> event_files() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(at("tensorboard")))
      names.push_back("tensorboard/" + entry.path().filename().string());
    std::ranges::sort(names);
    return names;
  }
  /// The data of the records of an event file, whose sums are compared.
  static std::vector<std::string> records(std::string_view bytes) {
    std::vector<std::string> found;
    while (!bytes.empty()) {
      const auto size = static_cast<std::size_t>(static_cast<unsigned char>(bytes[0])) +
                        256 * static_cast<std::size_t>(static_cast<unsigned char>(bytes[1]));
      const std::string data(bytes.substr(12, size));
      EXPECT_EQ(bytes.substr(0, size + 16), framed(data));
      bytes.remove_prefix(std::min(bytes.size(), size + 16));
      found.push_back(data);
    }
    return found;
  }
  /// Of an event: the byte after the key of field 2 (steps below 128), or -1.
  static int step_of(const std::string& event) { return event.at(9) == 0x10 ? event.at(10) : -1; }
  [[nodiscard]] std::vector<int> event_steps(const std::string& name) const {
    std::vector<int> steps;
    for (const std::string& event : records(text(name))) steps.push_back(step_of(event));
    return steps;
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
  ASSERT_EQ(event_files().size(), 1U);
  EXPECT_THAT(event_steps(event_files()[0]), ElementsAre(-1, 1, 2, 3, 4, 5, 6, 0, 2, 4));
  const std::string events = text(event_files()[0]);
  EXPECT_THAT(events, HasSubstr("steps/learning_rate"));
  EXPECT_THAT(events, HasSubstr("validation/loss"));
  EXPECT_THAT(events, testing::Not(HasSubstr("bits_per_byte")));  // not known
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(AlsoFilesTest, FollowEveryFlushAndNeverRunAhead) {
  RunFile file = begin();
  train(file, 1, 3);
  EXPECT_EQ(text("steps.jsonl"), "");  // the rows wait, here as there
  file.flush();
  EXPECT_EQ(std::ranges::count(text("steps.jsonl"), '\n'), 3);
  EXPECT_EQ(std::ranges::count(text("steps.csv"), '\n'), 4);
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
  const auto files = event_files();
  ASSERT_EQ(files.size(), 2U);
  const std::string restart = records(text(files[1]))[1], like_it = restart_event(0, 5);
  EXPECT_EQ(restart.substr(9),
            like_it.substr(12 + 9, like_it.size() - 16 - 9));  // but for its time
  EXPECT_THAT(event_steps(files[1]), ElementsAre(-1, 5, 5, 6, 7, 6));
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(AlsoFilesTest, PutRightWhatAKillOrAPowerCutLeft) {
  {
    RunFile file = begin();
    train(file, 1, 8);
  }
  test::write_bytes(at("steps.jsonl"), text("steps.jsonl") + "{\"step\": 9, \"lo");
  test::write_bytes(at("steps.csv"), text("steps.csv").substr(0, 200));  // in the middle of a row
  fs::remove(at("validation.csv"));
  test::write_bytes(at("validation.jsonl.tmp"), "half");
  {
    RunFile file = resume(8);
    train(file, 9, 10);
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
  ASSERT_EQ(event_files().size(), 1U);
  EXPECT_THAT(event_steps(event_files()[0]), ElementsAre(-1, 1, 2, 3, 4, 2, 4, 5));
}

TEST_F(AlsoFilesTest, KeepEarlierRowsWhereTheRecordBeginsLater) {
  {
    RunFile file = begin();
    train(file, 1, 8);
  }
  const std::string before = text("steps.csv");
  fs::rename(at("run.h5"), at("run.h5.damaged-1"));
  {
    RunFile file = RunFile::create(at("run.h5"), {}, {}, 6);
    attach(file, 7);
    train(file, 7, 9, 1.5);
  }
  const std::string after = text("steps.csv");
  const auto kept = before.find("\n7,") + 1;
  EXPECT_EQ(after.substr(0, kept), before.substr(0, kept));
  EXPECT_EQ(after.substr(kept),
            csv_line(row(7, 1.5)) + csv_line(row(8, 1.5)) + csv_line(row(9, 1.5)));
  EXPECT_EQ(std::ranges::count(text("validation.jsonl"), '\n'), 4);  // 2, 4, 6 and the new 8
}

TEST_F(AlsoFilesTest, MoveAsideWhatIsNoneOfTheirs) {
  test::write_bytes(at("steps.csv"), "step,loss\n1,2\n");
  test::write_bytes(at("validation.jsonl"), "{\"name\": 1}\n");
  {
    RunFile file = begin();
    train(file, 1, 2);
  }
  expect_copies();
  EXPECT_EQ(text("steps.csv.other-1"), "step,loss\n1,2\n");
  EXPECT_EQ(text("validation.jsonl.other-1"), "{\"name\": 1}\n");
  EXPECT_THAT(warnings_,
              ElementsAre(HasSubstr("validation.jsonl.other-1"), HasSubstr("steps.csv.other-1")));
}

TEST_F(AlsoFilesTest, NewEventFilesComeAfterOlderOnesWhateverTheClockSays) {
  fs::create_directory(at("tensorboard"));
  test::write_bytes(at("tensorboard/events.out.tfevents.9999999998.far-ahead"), "");
  { RunFile file = begin(); }
  EXPECT_THAT(event_files()[1], HasSubstr("tfevents.9999999999."));
}

}  // namespace
}  // namespace trireme::record
