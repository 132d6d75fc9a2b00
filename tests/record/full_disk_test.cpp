// SPDX-License-Identifier: Apache-2.0
// The record when the disk is full or the process dies at any writing call: unsynced lines may be
// lost, but the log can always be continued, and run.h5 is always a complete file. The record calls
// write() for its log, HDF5 pwrite() and ftruncate() for run.h5; both call rename() and fdatasync()
// through the functions below.
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.hpp"

#include "h5/dataset.hpp"
#include "h5/file.hpp"
#include "record/run_record_cases.hpp"

#include "support/scratch_directory.hpp"

namespace {

enum class Fate { none, full, file_full, dies };
Fate fate = Fate::none;
int left = 0;  ///< calls until the fault

/// Whether this call fails: the disk is full after the last allowed call.
bool refused(bool is_log) {
  if (fate == Fate::none || (fate == Fate::file_full && is_log) || left-- > 0)
    return false;
  if (fate == Fate::dies)
    ::_exit(9);
  errno = ENOSPC;
  return true;
}

template <class Function>
Function* real(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" ssize_t write(int file, const void* data, size_t count) {
  if (file > 2 && refused(true)) {  // a part of the line is written
    static_cast<void>(real<decltype(write)>("write")(file, data, count / 2) == 0);
    errno = ENOSPC;
    return -1;
  }
  return real<decltype(write)>("write")(file, data, count);
}
extern "C" ssize_t pwrite(int file, const void* data, size_t count, off_t offset) {
  return refused(false) ? -1 : real<decltype(pwrite)>("pwrite")(file, data, count, offset);
}
extern "C" int ftruncate(int file, off_t size) noexcept {
  return refused(false) ? -1 : real<decltype(ftruncate)>("ftruncate")(file, size);
}
extern "C" int rename(const char* from, const char* to) noexcept {
  return refused(false) ? -1 : real<decltype(rename)>("rename")(from, to);
}

namespace trireme::record {
namespace {

std::vector<std::int64_t> steps_in(const test::ScratchDirectory& scratch) {
  return column_of<std::int64_t>(scratch / "run.h5", "steps/step");
}

void add_steps(RunRecord& record, std::int64_t first, std::int64_t last) {
  for (std::int64_t step = first; step <= last; ++step) {
    record.append(step_row(step));
    record.append(std::vector<device::TimeSample>(300));
  }
  record.append(ValidationRow{last, 4});
  record.append(CheckpointRow{.step = last, .bytes = 10});
}

/// Resumes after step 12, records up to step 30, and writes run.h5 three times.
void go_on(const test::ScratchDirectory& scratch, std::vector<std::string>* said = nullptr) {
  RunRecord record = resumed(scratch.path(), 12, run_header,
                             {.file_share = 1e9, .warn = [&](const std::string& text) {
                                if (said != nullptr)
                                  said->push_back(text);
                              }});
  add_steps(record, 13, 20);
  record.do_due();
  add_steps(record, 21, 30);
  record.close();
}

std::vector<std::int64_t> up_to(std::int64_t last) {
  std::vector<std::int64_t> steps(static_cast<std::size_t>(last));
  std::iota(steps.begin(), steps.end(), 1);
  return steps;
}

/// Tries each of the first calls, and a sample of the many that write run.h5.
int step_after(int calls) {
  return calls < 10 ? 1 : 1 + calls / 8;
}

class RecordOfABrokenDisk : public testing::Test {
 protected:
  /// Restores the directory to the state after a run of 20 steps.
  void begin() const {
    for (const char* name : {"steps.jsonl", "run.h5", "run.h5.tmp"})
      std::filesystem::remove(scratch_ / name);
    RunRecord record = RunRecord::create(scratch_.path(), run_header);
    add_steps(record, 1, 20);
    record.close();
  }
  void expect_whole(int call) const {
    const auto steps = steps_in(scratch_);
    ASSERT_GE(steps.size(), 12U) << "call " << call;
    EXPECT_EQ(steps, up_to(std::ssize(steps))) << "call " << call;
    EXPECT_THAT(look_at_log(scratch_ / "steps.jsonl").damaged, testing::IsEmpty())
        << "call " << call;
    rebuild_run_file(scratch_.path());
    const auto rebuilt = steps_in(scratch_);
    ASSERT_GE(rebuilt.size(), 12U) << "call " << call;
    EXPECT_EQ(rebuilt, up_to(std::ssize(rebuilt))) << "call " << call;
    std::vector<std::string> said;
    ASSERT_NO_THROW(go_on(scratch_, &said)) << "call " << call;
    EXPECT_THAT(said, testing::IsEmpty()) << "call " << call;
    EXPECT_EQ(steps_in(scratch_), up_to(30)) << "call " << call;
    EXPECT_FALSE(std::filesystem::exists(scratch_ / "run.h5.tmp")) << "call " << call;
  }

  const test::ScratchDirectory scratch_;
};

TEST_F(RecordOfABrokenDisk, CanBeContinuedWhenItWasFullAtWhateverWrite) {
  int calls = 0;
  for (bool told = true; told; calls += step_after(calls)) {
    begin();
    left = calls;
    fate = Fate::full;
    told = false;
    try {
      go_on(scratch_);
    } catch (const StorageError& error) {
      EXPECT_NE(std::string(error.what()).find("No space left"), std::string::npos) << error.what();
      told = true;
    }
    fate = Fate::none;
    expect_whole(calls);
  }
  EXPECT_GT(calls, 10) << "the calls that write are seen here";
}

TEST_F(RecordOfABrokenDisk, GoesOnWhenOnlyItsFileFindsNoRoom) {
  begin();
  std::vector<std::string> said;
  left = 0;
  fate = Fate::file_full;
  EXPECT_THROW(go_on(scratch_, &said), StorageError) << "at the end alone";
  fate = Fate::none;
  EXPECT_THAT(said, testing::ElementsAre(testing::HasSubstr("The run continues")));
  EXPECT_EQ(steps_in(scratch_), up_to(20)) << "as it was";
  EXPECT_EQ(look_at_log(scratch_ / "steps.jsonl").last_step, 30);
  expect_whole(0);
}

TEST_F(RecordOfABrokenDisk, CanBeContinuedAfterKill9AtWhateverWriteToo) {
  int code = 9, calls = 0;
  for (; code == 9; calls += step_after(calls)) {
    begin();
    const pid_t child = ::fork();
    if (child == 0) {
      left = calls;
      fate = Fate::dies;
      go_on(scratch_);
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    code = WEXITSTATUS(status);
    expect_whole(calls);
  }
  EXPECT_EQ(code, 0);
  EXPECT_GT(calls, 10) << "the calls that write are seen here";
}

}  // namespace
}  // namespace trireme::record
