// SPDX-License-Identifier: Apache-2.0
#include "record/run/run_trial.hpp"

#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "h5/file.hpp"
#include "h5/journal.hpp"
#include "record/run/run_file.hpp"

#include "support/scratch_directory.hpp"

namespace trireme::record {
namespace {

using testing::HasSubstr;

const RunHeader trial_header{
    .facts = {}, .deck = {{"run.name", "tiny"}}, .hosts = {"a"}, .buckets = {}};

/// A record of nine steps, which a program of the test's choice looks at.
class RunTrial : public testing::Test {
 protected:
  RunTrial() {
    RunFile file = RunFile::create(path_, trial_header);
    for (std::int64_t step = 1; step <= 9; ++step) file.append(StepRow{.step = step});
  }
  ~RunTrial() override { use_trial_program(""); }

  /// What comes of a process that does `script`.
  RunFindings after(const std::string& script) {
    const std::string program = scratch_ / "program";
    test::write_bytes(program, "#!/bin/sh\n" + script + "\n");
    std::filesystem::permissions(program, std::filesystem::perms::owner_all);
    use_trial_program(program);
    return look_at_run_file(path_, 9);
  }

  const test::ScratchDirectory scratch_;
  const std::string path_ = scratch_ / "run.h5";
};

TEST_F(RunTrial, ReportsDamageWhenItsProcessCrashesOverTheFile) {
  for (const char* signal : {"SEGV", "BUS", "ABRT", "FPE", "ILL"}) {
    const RunFindings found = after(std::string("printf b; kill -") + signal + " $$");
    EXPECT_THAT(found.damage, HasSubstr("HDF5 itself crashes when it reads it")) << signal;
    EXPECT_EQ(found.last_step, 0) << signal;
  }
  EXPECT_THAT(after("printf b; exit 99").damage, HasSubstr("exit code 99")) << "a sanitizer's";
  EXPECT_EQ(after("printf b; kill -XCPU $$").damage, "HDF5 does not come to an end of reading it");
}

TEST_F(RunTrial, BelievesWhatItsProcessFound) {
  const RunFindings found = after("printf 'bf7\\nbroken in\\ntwo lines'");
  EXPECT_EQ(found.damage, "broken in\ntwo lines");
  EXPECT_EQ(found.last_step, 7);
  EXPECT_EQ(after("printf 'bf\\n'").last_step, std::nullopt);
  EXPECT_EQ(after("printf 'bf3\\n'; kill -SEGV $$").last_step, 3) << "it had ended with the file";
}

TEST_F(RunTrial, ReportsNoDamageForWhatTheFileDidNotCause) {
  for (const char* script :
       {"kill -SEGV $$", "exit 3", "printf b; kill -KILL $$", "printf b; kill -TERM $$",
        "printf 'b?'", "printf 'b?'; kill -SEGV $$", "printf bf3", ""}) {
    const RunFindings found = after(script);
    EXPECT_EQ(found.damage, "") << script;
    EXPECT_EQ(found.last_step, 9) << script;
  }
  use_trial_program(scratch_ / "nothing");
  EXPECT_EQ(look_at_run_file(path_, 9).last_step, 9);
}

TEST_F(RunTrial, NamesTheFileAndTheStep) {
  const std::string words = scratch_ / "words";
  after("printf '%s\\n' \"$@\" > " + words);
  EXPECT_EQ(test::bytes_of(words), "try-record\n" + path_ + "\n9\n");
}

TEST_F(RunTrial, ChangesNothing) {
  const std::string before = test::bytes_of(path_);
  {
    RunFile file = RunFile::resume(path_, trial_header, 5, {.rehearsal = true});
    for (std::int64_t step = 6; step <= 99; ++step) file.append(StepRow{.step = step});
    file.append_samples(std::vector<device::TimeSample>(5000));
    file.flush();
    EXPECT_EQ(test::bytes_of(path_), before);
    file.append(StepRow{.step = 100});
    file.close();
  }
  EXPECT_EQ(test::bytes_of(path_), before);
  EXPECT_FALSE(std::filesystem::exists(h5::journal_of(path_)));
  EXPECT_EQ(look_at_run_file(path_, 5).damage, "") << "in this process";
  EXPECT_EQ(test::bytes_of(path_), before);
}

TEST_F(RunTrial, FindsDamageThatOnlyAContinuedRunWouldMeet) {
  {
    const h5::File file = h5::open_file(path_, h5::Access::read_write);
    TRIREME_H5(H5Ldelete(file.get(), "timings/names", H5P_DEFAULT));
  }
  EXPECT_EQ(look_at_run_file(path_).damage, "") << "not looked at by readers";
  EXPECT_THAT(look_at_run_file(path_, 9).damage, HasSubstr("/timings/names"));
}

}  // namespace
}  // namespace trireme::record
