// SPDX-License-Identifier: Apache-2.0
#include "record/run/run_file.hpp"

#include <cmath>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"

#include "h5/attribute.hpp"
#include "h5/dataset.hpp"
#include "h5/file.hpp"
#include "record/run_file_cases.hpp"

#include "support/child_process.hpp"
#include "support/scratch_directory.hpp"

namespace trireme::record {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// What rank 0 would print.
std::string refusal_to_continue(const std::string& path, std::int64_t step = 1) {
  try {
    RunFile::resume(path, run_header, step);
  } catch (const UserError& error) {
    EXPECT_EQ(error.findings().size(), 1U);
    return error.what();
  }
  return "accepted";
}

TEST(RunFile, HoldsHeaderDeckRowsAndUnits) {
  const test::ScratchDirectory scratch;
  const std::string path = scratch / "run.h5";
  RunFile file = RunFile::create(path, run_header);
  for (std::int64_t step = 1; step <= 40; ++step) file.append(step_row(step));
  file.append_validation({0, 5.5});
  file.append_validation({40, 1.5});
  file.append_samples(std::vector<device::TimeSample>{span_sample(1, 0), span_sample(40, 1)});
  file.set_anchors(std::vector<double>{1.0, 2.0, 3.0});
  file.set_timing_fact("flops_per_token", 6e6, "FLOP/token");
  file.set_timing_fact("flops_per_token", 7e6, "FLOP/token");
  file.set_memory("pool.peak", 4096);
  file.close();

  const h5::File back = h5::open_file(path, h5::Access::read);
  EXPECT_EQ(h5::read_attribute<std::string>(back.get(), "filetype"), "trireme-run");
  EXPECT_THAT(h5::read_attribute<std::vector<std::int64_t>>(back.get(), "version"),
              ElementsAre(1, 0));
  EXPECT_EQ(h5::read_attribute<std::string>(back.get(), "machine"), "node1 node2");
  EXPECT_EQ(h5::read_attribute<std::string>(back.get(), "git_sha1"), "abc123");
  EXPECT_THAT(h5::read_attribute<std::string>(back.get(), "date_and_time"),
              testing::MatchesRegex("20..-..-.. ..:..:.. .0000"));
  EXPECT_THAT(h5::attribute_names(h5::open_group(back.get(), "deck").get()),
              ElementsAre("optimizer.learning_rate", "run.name"));
  EXPECT_EQ(column_of<std::int64_t>(path, "steps/step").size(), 40U);
  EXPECT_EQ(column_of<double>(path, "steps/loss")[39], step_row(40).loss);
  EXPECT_EQ(column_of<std::int64_t>(path, "steps/tokens")[39], 4000);
  EXPECT_EQ(column_of<double>(path, "steps/exposed_s")[39], step_row(40).exposed_s);
  EXPECT_EQ(
      h5::read_attribute<std::string>(h5::Dataset::open(back.get(), "steps/seconds").id(), "unit"),
      "s");
  EXPECT_THAT(column_of<std::int64_t>(path, "validation/step"), ElementsAre(0, 40));
  EXPECT_THAT(column_of<double>(path, "validation/loss"), ElementsAre(5.5, 1.5));
  EXPECT_EQ(h5::Dataset::open(back.get(), "timings/samples").elements(), 2);
  EXPECT_EQ(h5::Dataset::open(back.get(), "timings/names")
                .read_strings()[static_cast<std::size_t>(device::SpanName::reduce_exposed)],
            "reduce.exposed");
  EXPECT_THAT(column_of<double>(path, "timings/anchors/calendar_s"), ElementsAre(1.0, 2.0, 3.0));
  EXPECT_EQ(
      h5::read_attribute<double>(h5::open_group(back.get(), "timings").get(), "flops_per_token"),
      7e6);
  EXPECT_EQ(
      h5::read_attribute<std::int64_t>(h5::open_group(back.get(), "memory").get(), "pool.peak"),
      4096);
}

TEST(RunFile, WritesWhatWaitsWhenEnoughRowsOrSecondsHavePassed) {
  const test::ScratchDirectory scratch;
  const std::string path = scratch / "run.h5";
  double now = 0;
  RunFile file = RunFile::create(
      path, run_header, {.flush_rows = 4, .flush_seconds = 10, .clock = [&now] { return now; }});
  const auto rows = [&] { return column_of<double>(path, "steps/loss").size(); };
  for (int step = 1; step <= 3; ++step) file.append(step_row(step));
  EXPECT_EQ(rows(), 0U);
  file.append(step_row(4));
  EXPECT_EQ(rows(), 4U);
  now = 9;
  file.append(step_row(5));
  EXPECT_EQ(rows(), 4U);
  now = 10;
  file.append(step_row(6));
  EXPECT_EQ(rows(), 6U);
}

TEST(RunFile, WaitsFiftyTimesAsLongAsItsLastFlushTook) {
  const test::ScratchDirectory scratch;
  const std::string path = scratch / "run.h5";
  double now = 0;  // a second passes from one look at the clock to the next: so long a flush takes
  RunFile file =
      RunFile::create(path, run_header, {.flush_rows = 1, .clock = [&now] { return now += 1; }});
  const auto rows = [&] { return column_of<double>(path, "steps/loss").size(); };
  for (int step = 1; step < 50; ++step) file.append(step_row(step));
  EXPECT_EQ(rows(), 0U);
  file.append(step_row(50));
  EXPECT_EQ(rows(), 50U);
  file.append(step_row(51));
  file.flush();  // asked for
  EXPECT_EQ(rows(), 51U);
}

TEST(RunFile, KeepsItsRowsWhenTheProcessIsKilled) {
  const test::ScratchDirectory scratch;
  const std::string path = scratch / "run.h5";
  std::optional<RunFile> open;
  test::DoomedChild child([&] {
    open = RunFile::create(path, run_header,
                           {.flush_rows = 10, .flush_seconds = 1e9, .flush_share = 1e9});
    for (std::int64_t step = 1; step <= 5000; ++step) {
      open->append_samples(
          std::vector<device::TimeSample>(20, span_sample(static_cast<std::uint32_t>(step), 0)));
      open->append(step_row(step));
    }
    open->append(step_row(5001));  // waits, and is lost
  });
  child.kill();

  EXPECT_EQ(column_of<std::int64_t>(path, "steps/step").size(), 5000U);
  RunFile file = RunFile::resume(path, run_header, 4000);
  file.append(step_row(4001));
  file.close();
  const auto steps = column_of<std::int64_t>(path, "steps/step");
  ASSERT_EQ(steps.size(), 4001U);
  EXPECT_EQ(steps.back(), 4001);
}

TEST(RunFile, DropsRowsBeyondTheResumedStep) {
  const test::ScratchDirectory scratch;
  const std::string path = scratch / "run.h5";
  {
    RunFile file = RunFile::create(path, run_header);
    file.set_anchors(std::vector<double>{10.0, 20.0});
    file.append_validation({0, 5.5});
    for (std::int64_t step = 1; step <= 9; ++step) file.append(step_row(step));
    file.append_validation({4, 4.5});
    file.append_validation({8, 3.5});
    for (const std::int64_t step : {3, 6, 9})
      file.append_checkpoint({.step = step, .bytes = 10 * step, .stall_s = 0.5});
    // As gathered from ranks: not sorted by step.
    file.append_samples(std::vector<device::TimeSample>{span_sample(1, 0), span_sample(7, 0),
                                                        span_sample(2, 1), span_sample(6, 1),
                                                        span_sample(6, 1)});
  }
  RunHeader other = run_header;
  other.deck = {{"run.name", "tiny"}};
  other.hosts = {"node7"};
  {
    RunFile file = RunFile::resume(path, other, 6);
    file.set_anchors(std::vector<double>{30.0});
    file.append(step_row(7));
  }
  EXPECT_THAT(column_of<std::int64_t>(path, "steps/step"), ElementsAre(1, 2, 3, 4, 5, 6, 7));
  for (const char* name : {"loss", "grad_norm", "learning_rate", "seconds", "exposed_s"})
    EXPECT_EQ(column_of<double>(path, std::string("steps/") + name).size(), 7U) << name;
  EXPECT_THAT(column_of<std::int64_t>(path, "validation/step"), ElementsAre(0, 4));
  EXPECT_THAT(column_of<std::int64_t>(path, "checkpoints/step"), ElementsAre(3, 6));
  EXPECT_THAT(column_of<std::int64_t>(path, "checkpoints/bytes"), ElementsAre(30, 60));
  EXPECT_THAT(column_of<double>(path, "checkpoints/stall_s"), ElementsAre(0.5, 0.5));
  EXPECT_THAT(column_of<std::int64_t>(path, "sessions/first_step"), ElementsAre(1, 7));
  EXPECT_THAT(column_of<std::int64_t>(path, "sessions/ranks"), ElementsAre(3, 1));
  EXPECT_THAT(column_of<double>(path, "timings/anchors/calendar_s"), ElementsAre(10.0, 20.0, 30.0));
  EXPECT_THAT(column_of<std::int64_t>(path, "timings/anchors/first_step"), ElementsAre(1, 1, 7));

  const h5::File file = h5::open_file(path, h5::Access::read);
  EXPECT_THAT(h5::attribute_names(h5::open_group(file.get(), "deck").get()),
              ElementsAre("run.name"));
  EXPECT_EQ(h5::read_attribute<std::string>(file.get(), "machine"), "node1 node2");
  const h5::Dataset samples = h5::Dataset::open(file.get(), "timings/samples");
  const auto u32 = h5::type_of<std::uint32_t>();
  struct StepAndRank {
    std::uint32_t step, rank;
  };
  std::vector<StepAndRank> kept(4);
  ASSERT_EQ(samples.elements(), 4);
  samples.read(0, 4, h5::compound_type(8, {{"step", 0, u32}, {"rank", 4, u32}}), kept.data());
  std::vector<std::uint32_t> steps;
  for (const StepAndRank& one : kept) steps.push_back(one.step);
  EXPECT_THAT(steps, ElementsAre(1, 2, 6, 6));
}

TEST(RunFile, HasTheBucketsOfEveryStart) {
  const test::ScratchDirectory scratch;
  const std::string path = scratch / "run.h5";
  {
    RunFile file = RunFile::create(path, run_header);
    for (std::int64_t step = 1; step <= 9; ++step) file.append(step_row(step));
  }
  RunHeader other = run_header;
  other.buckets = {{"wte", "a", 256, 10, 128}};
  RunFile::resume(path, other, 6).close();
  other.buckets = {{"wte", "a", 384, 138, 96}};
  RunFile::resume(path, other, 4).close();  // the start after step 6 is undone
  const auto numbers = [&](const char* name) { return column_of<std::int64_t>(path, name); };
  EXPECT_THAT(numbers("buckets/first_step"), ElementsAre(1, 1, 5));
  EXPECT_THAT(numbers("buckets/bucket"), ElementsAre(0, 1, 0));
  EXPECT_THAT(numbers("buckets/elements"), ElementsAre(96, 192, 384));
  EXPECT_THAT(numbers("buckets/padding"), ElementsAre(2, 0, 138));
  EXPECT_THAT(numbers("buckets/shard_elements"), ElementsAre(32, 64, 96));
  const h5::File file = h5::open_file(path, h5::Access::read);
  const auto words = [&](const char* name) {
    return h5::Dataset::open(file.get(), name).read_strings();
  };
  EXPECT_THAT(words("buckets/first_parameter"), ElementsAre("b", "wte", "wte"));
  EXPECT_THAT(words("buckets/last_parameter"), ElementsAre("a", "wte", "a"));
}

TEST(RunFile, RefusesOtherNamesOfSpans) {
  const test::ScratchDirectory scratch;
  const std::string path = scratch / "run.h5";
  RunFile::create(path, run_header).close();
  {
    const h5::File file = h5::open_file(path, h5::Access::read_write);
    h5::Dataset names = h5::Dataset::open(file.get(), "timings/names");
    ASSERT_EQ(names.read_strings().size(), device::num_span_names);
    names.resize(3);
    names.append_strings(std::vector<std::string>{"zebra"});
  }
  EXPECT_THAT(refusal_to_continue(path), HasSubstr("/timings/names of the run file"));
  const h5::File file = h5::open_file(path, h5::Access::read);
  EXPECT_EQ(h5::Dataset::open(file.get(), "timings/names").read_strings().size(), 4U)
      << "touched although refused";
}

TEST(RunFile, ReportsItsLastStepAndRefusesOtherFiles) {
  const test::ScratchDirectory scratch;
  const std::string path = scratch / "run.h5";
  EXPECT_EQ(RunFile::last_step(path), std::nullopt);
  {
    RunFile file = RunFile::create(path, run_header);
    for (std::int64_t step = 1; step <= 3; ++step) file.append(step_row(step));
  }
  EXPECT_EQ(RunFile::last_step(path), 3);
  std::filesystem::resize_file(path, 1000);
  EXPECT_EQ(RunFile::last_step(path), 0) << "killed while it was made";
  test::write_bytes(path, "");
  EXPECT_EQ(RunFile::last_step(path), 0);
  test::write_bytes(path, "somebody's notes");
  EXPECT_EQ(RunFile::last_step(path), std::nullopt);
  std::filesystem::remove(path);
  {
    const h5::File other = h5::create_file(path);
    h5::write_attribute(other.get(), "filetype", "statepoint");
  }
  EXPECT_EQ(RunFile::last_step(path), std::nullopt);
}

TEST(RunFile, NeverOverwrites) {
  const test::ScratchDirectory scratch;
  test::write_bytes(scratch / "run.h5", "somebody's notes");
  EXPECT_THROW(RunFile::create(scratch / "run.h5", run_header), UserError);
  EXPECT_EQ(test::bytes_of(scratch / "run.h5"), "somebody's notes");
}

TEST(RunFile, RefusesWhatItCannotContinueAndLeavesItAlone) {
  const test::ScratchDirectory scratch;
  const std::string path = scratch / "run.h5";
  EXPECT_THAT(refusal_to_continue(path),
              HasSubstr("run.h5: error: there is no run file to continue"));

  test::write_bytes(path, "not HDF5");
  EXPECT_THAT(refusal_to_continue(path),
              HasSubstr("run.h5: error: not an HDF5 file: move it away"));
  EXPECT_EQ(test::bytes_of(path), "not HDF5");
  std::filesystem::remove(path);

  {
    const h5::File other = h5::create_file(path);
    h5::write_attribute(other.get(), "filetype", "statepoint");
  }
  EXPECT_THAT(refusal_to_continue(path), HasSubstr("not a run file of trireme"));
  std::filesystem::remove(path);

  RunFile::create(path, run_header).close();
  {
    const h5::File file = h5::open_file(path, h5::Access::read_write);
    h5::write_attribute(file.get(), "version", std::vector<std::int64_t>{1, 5});
  }
  EXPECT_THAT(refusal_to_continue(path),
              HasSubstr("the run file is format version 1.5 and this trireme reads 1.0"));
  std::filesystem::remove(path);

  RunFile::create(path, run_header).close();
  {
    const h5::File file = h5::open_file(path, h5::Access::read_write);
    TRIREME_H5(H5Ldelete(file.get(), "steps/loss", H5P_DEFAULT));
  }
  EXPECT_THAT(refusal_to_continue(path), HasSubstr("the run file is damaged: HDF5: H5Dopen2"));
  std::filesystem::resize_file(path, 1000);
  EXPECT_THAT(refusal_to_continue(path), HasSubstr("truncated or damaged"));
}

TEST(RunFile, ReportsAFullDiskAndEndsTheProcessInOrder) {
  const test::ScratchDirectory scratch;
  const auto fill = [&] {
    RunFile file = RunFile::create(scratch / "run.h5", run_header, {.flush_share = 1e9});
    for (std::uint32_t step = 1; step < 10'000; ++step) {
      file.append_samples(std::vector<device::TimeSample>(100, span_sample(step, 0)));
      file.append(step_row(step));
    }
  };
  EXPECT_EXIT(test::exit_with_a_full_disk(3'000'000, fill), testing::ExitedWithCode(3),
              "make room for .*run.h5 failed: File too large; the file is whole");
  // What was written before is there, and a later start goes on with it.
  const auto rows = column_of<std::int64_t>(scratch / "run.h5", "steps/step").size();
  EXPECT_GT(rows, 100U);
  EXPECT_EQ(RunFile::damage(scratch / "run.h5"), "");
  RunFile file = RunFile::resume(scratch / "run.h5", run_header, 50);
  file.append(step_row(51));
  file.close();
  EXPECT_EQ(column_of<std::int64_t>(scratch / "run.h5", "steps/step").size(), 51U);
}

TEST(RunFile, KeepsTheDeckOfEverySession) {
  const test::ScratchDirectory scratch;
  const std::string path = scratch / "run.h5";
  RunFile::create(path, run_header).close();
  RunHeader other = run_header;
  other.deck[1].second = "0.002";
  RunFile::resume(path, other, 0).close();
  const h5::File file = h5::open_file(path, h5::Access::read);
  EXPECT_THAT(h5::Dataset::open(file.get(), "sessions/deck").read_strings(),
              ElementsAre("run.name: tiny\noptimizer.learning_rate: 0.001\n",
                          "run.name: tiny\noptimizer.learning_rate: 0.002\n"));
}

TEST(RunFile, RefusesTheRecordOfAnotherRun) {
  const test::ScratchDirectory scratch;
  const std::string path = scratch / "run.h5";
  RunHeader mine = run_header;
  mine.facts.emplace_back("run_id", "0123456789abcdef");
  RunFile::create(path, mine).close();
  RunFile::resume(path, mine, 0).close();
  mine.facts.back().second = "fedcba9876543210";
  try {
    RunFile::resume(path, mine, 0);
    ADD_FAILURE() << "accepted";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), HasSubstr("the record of another run (0123456789abcdef, and this one "
                                        "is fedcba9876543210)"));
  }
}

TEST(RunFile, ReportsRowsThatAreNotWhatWasWritten) {
  const test::ScratchDirectory scratch;
  const std::string path = scratch / "run.h5";
  const auto fresh = [&] {
    std::filesystem::remove(path);
    RunFile file = RunFile::create(path, run_header,
                                   {.flush_rows = 3, .flush_seconds = 1e9, .flush_share = 1e9});
    for (std::int64_t step = 1; step <= 9; ++step) file.append(step_row(step));
    file.append_validation({4, 4.5});
    file.append_checkpoint({.step = 6, .bytes = 60});
    file.append_samples(std::vector<device::TimeSample>(5, span_sample(3, 0)));
    file.append_noise_scale({.step = 4, .trace = 2});
  };
  const auto warnings = [&](std::int64_t step) {
    const RunFile file = RunFile::resume(path, run_header, step);
    return file.warnings();
  };
  fresh();
  EXPECT_THAT(warnings(9), testing::IsEmpty());
  EXPECT_THAT(warnings(7), testing::IsEmpty());
  EXPECT_THAT(warnings(5), testing::IsEmpty()) << "after rows were dropped";

  fresh();
  const double wrong = 17;
  h5::Dataset::open(h5::open_file(path, h5::Access::read_write).get(), "noise_scale/trace")
      .write(0, 1, h5::type_of<double>(), &wrong);
  EXPECT_THAT(warnings(9), ElementsAre(HasSubstr("the rows of step 4 to 4 of /noise_scale")));

  fresh();
  h5::Dataset::open(h5::open_file(path, h5::Access::read_write).get(), "steps/seconds")
      .write(4, 1, h5::type_of<double>(), &wrong);
  EXPECT_THAT(warnings(9),
              ElementsAre(HasSubstr("the rows of step 4 to 6 of /steps are not what")));
  EXPECT_THAT(warnings(9), testing::IsEmpty()) << "told once";
  for (const char* name : {"validation/loss", "checkpoints/copy_s"}) {
    fresh();
    h5::Dataset::open(h5::open_file(path, h5::Access::read_write).get(), name)
        .write(0, 1, h5::type_of<double>(), &wrong);
    EXPECT_THAT(warnings(9), ElementsAre(HasSubstr("are not what was written there"))) << name;
  }
}

TEST(RunFile, TakesALengthThatTheFileCannotHoldForDamage) {
  const test::ScratchDirectory scratch;
  const std::string path = scratch / "run.h5";
  {
    RunFile file = RunFile::create(path, run_header);
    for (std::int64_t step = 1; step <= 9; ++step) file.append(step_row(step));
  }
  // HDF5 would look for each of the chunks to drop, for hours.
  h5::Dataset::open(h5::open_file(path, h5::Access::read_write).get(), "steps/grad_norm")
      .resize(std::int64_t{1} << 40);
  EXPECT_THROW(RunFile::resume(path, run_header, 7), h5::DamagedError);
}

TEST(RunFile, ReportsWhichRowsAColumnThatEndsEarlyCosts) {
  const test::ScratchDirectory scratch;
  const std::string path = scratch / "run.h5";
  {
    RunFile file = RunFile::create(path, run_header);
    for (std::int64_t step = 1; step <= 9; ++step) file.append(step_row(step));
  }
  h5::Dataset::open(h5::open_file(path, h5::Access::read_write).get(), "steps/grad_norm").resize(4);
  RunFile file = RunFile::resume(path, run_header, 7);
  EXPECT_THAT(file.warnings(),
              ElementsAre("column grad_norm of /steps ends before the others: the rows of step 5 "
                          "to 7 are dropped"));
  file.close();
  EXPECT_THAT(column_of<std::int64_t>(path, "steps/step"), ElementsAre(1, 2, 3, 4));
  // So is the column that says which rows there are.
  h5::Dataset::open(h5::open_file(path, h5::Access::read_write).get(), "steps/step").resize(1);
  EXPECT_THAT(RunFile::resume(path, run_header, 7).warnings(),
              ElementsAre("column step of /steps ends before the others: 3 rows are dropped"));
}

TEST(RunFile, ReportsDamageThatNoResumeCouldReadOver) {
  const test::ScratchDirectory scratch;
  const std::string path = scratch / "run.h5";
  EXPECT_EQ(RunFile::damage(path), "") << "not there";
  const auto fresh = [&] {
    std::filesystem::remove(path);
    RunFile file = RunFile::create(path, run_header);
    for (std::int64_t step = 1; step <= 9; ++step) file.append(step_row(step));
  };
  fresh();
  EXPECT_EQ(RunFile::damage(path), "");
  {
    const h5::File file = h5::open_file(path, h5::Access::read_write);
    TRIREME_H5(H5Ldelete(file.get(), "steps/loss", H5P_DEFAULT));
  }
  EXPECT_THAT(RunFile::damage(path), HasSubstr("/steps/loss"));
  fresh();
  h5::Dataset::open(h5::open_file(path, h5::Access::read_write).get(), "steps/loss")
      .resize(std::int64_t{1} << 60);
  EXPECT_THAT(RunFile::damage(path), HasSubstr("and the file holds 8 KiB of them"));
  fresh();
  std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
  EXPECT_THAT(RunFile::damage(path), HasSubstr("run.h5"));
  test::write_bytes(path, "somebody's notes");
  EXPECT_EQ(RunFile::damage(path), "it is no HDF5 file");
  std::filesystem::remove(path);
  {
    const h5::File other = h5::create_file(path);
    h5::write_attribute(other.get(), "filetype", "statepoint");
  }
  EXPECT_EQ(RunFile::damage(path), "") << "not ours: resume() refuses it";
}

TEST(RunFile, LeavesNoFileWhenItCannotBeCreated) {
  const test::ScratchDirectory scratch;
  const auto fill = [&] { RunFile::create(scratch / "run.h5", run_header); };
  EXPECT_EXIT(test::exit_with_a_full_disk(4'000, fill), testing::ExitedWithCode(3),
              "File too large");
  EXPECT_FALSE(std::filesystem::exists(scratch / "run.h5"));
}

TEST(RunFile, ReportsADirectoryThatIsMissing) {
  const test::ScratchDirectory scratch;
  try {
    RunFile::create(scratch / "none/run.h5", run_header);
    FAIL() << "created";
  } catch (const StorageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("No such file or directory"));
  }
}

}  // namespace
}  // namespace trireme::record
