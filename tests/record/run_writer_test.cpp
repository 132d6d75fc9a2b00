// SPDX-License-Identifier: Apache-2.0
#include "record/run/run_writer.hpp"

#include <chrono>
#include <filesystem>
#include <future>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "h5/dataset.hpp"
#include "h5/file.hpp"

#include "support/scratch_directory.hpp"

namespace trireme::record {
namespace {

class RunWriterTest : public testing::Test {
 protected:
  [[nodiscard]] RunRecord new_record() const { return RunRecord::create(scratch_.path(), {}); }
  [[nodiscard]] std::vector<std::int64_t> steps() const {
    return h5::Dataset::open(h5::open_file(path_).get(), "steps/step").read_all<std::int64_t>();
  }
  static RunWriter::Entry row(std::int64_t step) {
    return [step](RunRecord& record) { record.append(StepRow{.step = step}); };
  }

  const test::ScratchDirectory scratch_;
  const std::string path_ = scratch_.path() + "/run.h5";
};

TEST_F(RunWriterTest, CallerGoesOnWhileAnEntryIsWritten) {
  std::promise<void> may_go_on;
  RunWriter writer(new_record());
  writer.write([gate = may_go_on.get_future().share()](RunRecord& record) {
    gate.wait();
    record.append(StepRow{.step = 1});
  });
  for (std::int64_t step = 2; step <= 100; ++step) writer.write(row(step));
  EXPECT_FALSE(writer.full());
  may_go_on.set_value();  // not reached if write() waited for the first entry
  writer.write([](RunRecord& record) { record.close(); });
  writer.finish();
  std::vector<std::int64_t> expected(100);
  for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = static_cast<std::int64_t>(i) + 1;
  EXPECT_EQ(steps(), expected);
}

TEST_F(RunWriterTest, QueueIsBoundedInBytesAndEntries) {
  for (const std::size_t bytes : {RunWriter::most_bytes, std::size_t{0}}) {
    std::promise<void> may_go_on;
    const std::string directory = path_ + std::to_string(bytes);
    std::filesystem::create_directory(directory);
    RunWriter writer(RunRecord::create(directory, {}));
    const auto gate = may_go_on.get_future().share();
    const std::size_t entries = bytes > 0 ? 1 : RunWriter::most_waiting;
    for (std::size_t i = 0; i < entries; ++i) {
      EXPECT_FALSE(writer.full());
      writer.write([gate](RunRecord&) { gate.wait(); }, bytes);
    }
    EXPECT_TRUE(writer.full());
    may_go_on.set_value();
    writer.write([](RunRecord&) {});  // waits for room
    writer.finish();
    EXPECT_FALSE(writer.full());
  }
}

TEST_F(RunWriterTest, FailureEndsTheRecordAtTheNextWrite) {
  RunWriter writer(new_record());
  bool later_one_ran = false;
  std::promise<void> may_fail;
  writer.write([gate = may_fail.get_future().share()](RunRecord&) {
    gate.wait();
    throw std::runtime_error("disk full");
  });
  writer.write([&later_one_ran](RunRecord&) { later_one_ran = true; });
  may_fail.set_value();
  EXPECT_THROW(writer.finish(), std::runtime_error);
  EXPECT_THROW(writer.write(row(1)), std::runtime_error);
  EXPECT_THROW(writer.finish(), std::runtime_error);  // not forgotten
  EXPECT_FALSE(later_one_ran);
}

TEST_F(RunWriterTest, EndWritesWhatWaits) {
  {
    RunWriter writer(new_record());
    for (std::int64_t step = 1; step <= 3; ++step) writer.write(row(step));
  }
  EXPECT_THAT(steps(), testing::ElementsAre(1, 2, 3));
}

TEST_F(RunWriterTest, IdleWriterDoesWhatIsDue) {
  RunWriter writer(
      RunRecord::create(scratch_.path(), {}, {.file_seconds = 0.5, .file_share = 1e9}));
  writer.write(row(1));  // too early for run.h5
  for (int tries = 0; tries < 200 && steps().empty(); ++tries)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_THAT(steps(), testing::ElementsAre(1));
}

}  // namespace
}  // namespace trireme::record
