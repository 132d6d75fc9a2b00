// SPDX-License-Identifier: Apache-2.0
#include "record/run/run_record.hpp"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"

#include "h5/dataset.hpp"
#include "h5/file.hpp"
#include "record/run/log_line.hpp"
#include "record/run_record_cases.hpp"

#include "support/child_process.hpp"
#include "support/scratch_directory.hpp"

namespace trireme::record {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class RunRecordTest : public testing::Test {
 protected:
  /// A new record with rows for these steps.
  [[nodiscard]] RunRecord begun(std::int64_t steps, RunRecordOptions options = {}) const {
    RunRecord record = RunRecord::create(scratch_.path(), run_header, std::move(options));
    for (std::int64_t step = 1; step <= steps; ++step) record.append(step_row(step));
    return record;
  }
  [[nodiscard]] std::vector<std::int64_t> steps() const {
    return column_of<std::int64_t>(file_, "steps/step");
  }
  /// The steps and ranks of the spans in run.h5.
  [[nodiscard]] std::vector<std::pair<std::uint32_t, std::uint32_t>> spans() const {
    const h5::File file = h5::open_file(file_);
    const h5::Dataset samples = h5::Dataset::open(file.get(), "timings/samples");
    const auto u32 = h5::type_of<std::uint32_t>();
    std::vector<std::pair<std::uint32_t, std::uint32_t>> found(
        static_cast<std::size_t>(samples.elements()));
    samples.read(0, samples.elements(), h5::compound_type(8, {{"step", 0, u32}, {"rank", 4, u32}}),
                 found.data());
    return found;
  }
  /// The warnings when resuming after this step.
  [[nodiscard]] std::vector<std::string> warnings_of_resume(std::int64_t step) const {
    std::vector<std::string> said;
    resumed(scratch_.path(), step, run_header,
            {.warn = [&](const std::string& text) { said.push_back(text); }});
    return said;
  }
  void add_text(const std::string& text) const {
    test::write_bytes(log_, test::bytes_of(log_) + text);
  }

  const test::ScratchDirectory scratch_;
  const std::string file_ = scratch_ / "run.h5", log_ = scratch_ / "steps.jsonl";
};

TEST_F(RunRecordTest, ReplacesOnlyTextFilesThatTheRunWrote) {
  const auto content = [&](const std::string& name) {
    std::ifstream file(scratch_ / name);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  std::ofstream(scratch_ / "deck") << "mine";
  {
    RunRecord record = begun(1);
    record.replace_text_file("deck", "first", {});
    record.close();
  }
  EXPECT_EQ(content("deck"), "first");
  EXPECT_EQ(content("deck.changed-1"), "mine");
  for (const char* edited : {"", "edited"}) {
    if (*edited != '\0')
      std::ofstream(scratch_ / "deck") << edited;
    RunRecord record = resumed(scratch_.path(), 1, run_header);
    record.replace_text_file("deck", std::string("after ") + edited, look_at_log(log_));
    EXPECT_EQ(content("deck"), std::string("after ") + edited);
    record.close();
  }
  EXPECT_EQ(content("deck.changed-2"), "edited");
}

TEST_F(RunRecordTest, HoldsHeaderDeckRowsAndUnits) {
  RunRecord record = begun(40);
  record.append(ValidationRow{0, 5.5});
  record.append(ValidationRow{40, 1.5});
  record.append(SkippedRow{.step = 7, .found = "\"wte\"\\[3] of rank 1\n"});
  record.append(span_samples({span_sample(1, 0), span_sample(40, 1)}));
  record.set_anchors(std::vector<double>{1.0, 2.0, 3.0});
  record.set_timing_fact("flops_per_token", 6e6, "FLOP/token");
  record.set_timing_fact("flops_per_token", 7e6, "FLOP/token");
  record.set_memory("pool.peak", 4096);
  record.close();

  const h5::File back = h5::open_file(file_);
  EXPECT_EQ(h5::read_attribute<std::string>(back.get(), "filetype"), "trireme-run");
  EXPECT_THAT(h5::read_attribute<std::vector<std::int64_t>>(back.get(), "version"),
              ElementsAre(1, 0));
  EXPECT_EQ(h5::read_attribute<std::string>(back.get(), "machine"), "node1 node2");
  EXPECT_EQ(h5::read_attribute<std::string>(back.get(), "git_sha1"), "abc123");
  EXPECT_EQ(h5::read_attribute<std::int64_t>(back.get(), "parameters"), 288);
  EXPECT_THAT(h5::read_attribute<std::string>(back.get(), "date_and_time"),
              testing::MatchesRegex("20..-..-.. ..:..:.. .0000"));
  EXPECT_EQ(steps().size(), 40U);
  EXPECT_EQ(column_of<double>(file_, "steps/loss")[39], step_row(40).loss);
  EXPECT_EQ(column_of<std::int64_t>(file_, "steps/tokens")[39], 4000);
  EXPECT_EQ(column_of<double>(file_, "steps/exposed_s")[39], step_row(40).exposed_s);
  EXPECT_EQ(
      h5::read_attribute<std::string>(h5::Dataset::open(back.get(), "steps/seconds").id(), "units"),
      "s");
  EXPECT_THAT(column_of<std::int64_t>(file_, "validation/step"), ElementsAre(0, 40));
  EXPECT_THAT(column_of<double>(file_, "validation/loss"), ElementsAre(5.5, 1.5));
  EXPECT_THAT(h5::Dataset::open(back.get(), "skipped/found").read_all<std::string>(),
              ElementsAre("\"wte\"\\[3] of rank 1\n"));
  EXPECT_THAT(spans(), ElementsAre(testing::Pair(1, 0), testing::Pair(40, 1)));
  EXPECT_EQ(
      h5::Dataset::open(back.get(), "timings/names")
          .read_all<std::string>()[static_cast<std::size_t>(device::SpanName::reduce_exposed)],
      "reduce.exposed");
  EXPECT_THAT(column_of<double>(file_, "timings/anchors/calendar_s"), ElementsAre(1.0, 2.0, 3.0));
  EXPECT_EQ(
      h5::read_attribute<double>(h5::open_group(back.get(), "timings").get(), "flops_per_token"),
      7e6);
  EXPECT_EQ(
      h5::read_attribute<std::int64_t>(h5::open_group(back.get(), "memory").get(), "pool.peak"),
      4096);
}

TEST_F(RunRecordTest, HasNumbersOfTheDeckAsNumbersAndItsTextWithoutQuotes) {
  RunHeader header = run_header;
  header.deck = {{"run.steps", "450"},         {"optimizer.learning_rate", "1e-05"},
                 {"run.name", "\"1e5\""},      {"sample.prompt", "\"a \\\"b\\\"\\n\""},
                 {"run.walltime", "0:10:00"},  {"gpu.graphs", "true"},
                 {"data.train.text", "[a, b]"}};
  RunRecord::create(scratch_.path(), header).close();
  const h5::File file = h5::open_file(file_);
  const h5::Group deck = h5::open_group(file.get(), "deck");
  EXPECT_EQ(h5::read_attribute<std::int64_t>(deck.get(), "run.steps"), 450);
  EXPECT_EQ(h5::read_attribute<double>(deck.get(), "optimizer.learning_rate"), 1e-5);
  for (const auto& [name, text] : {std::pair{"run.name", "1e5"},
                                   {"sample.prompt", "a \"b\"\n"},
                                   {"run.walltime", "0:10:00"},
                                   {"gpu.graphs", "true"},
                                   {"data.train.text", "[a, b]"}})
    EXPECT_EQ(h5::read_attribute<std::string>(deck.get(), name), text);
}

TEST_F(RunRecordTest, LogAloneHoldsEverythingButSpans) {
  RunRecord record = begun(9);
  record.append(ValidationRow{4, 4.5});
  record.append("set", "text: a", EvaluationRow{.step = 4, .loss = 2});
  record.append(CheckpointRow{.step = 6, .bytes = 60, .write_s = 0.5});
  record.append(NoiseScaleRow{.step = 4, .trace = 2});
  record.append(std::vector<RankSpanRow>{{.first_step = 1, .last_step = 9, .name = 3, .max_s = 1}});
  record.append(RankEnergyRow{.first_step = 1, .last_step = 9, .rank = 2, .gpu_joules = 40});
  record.set_anchors(std::vector<double>{1.0});
  record.set_timing_fact("dropped", 0, "samples");
  record.set_memory("peak", 5);
  record.close();
  const std::string whole = test::bytes_of(file_);
  std::filesystem::remove(file_);
  EXPECT_TRUE(run_file_is_behind(scratch_.path()));
  EXPECT_THAT(rebuild_run_file(scratch_.path()),
              ElementsAre(HasSubstr("up to step 9, and 0 spans")));
  EXPECT_EQ(test::bytes_of(file_), whole);
  EXPECT_FALSE(run_file_is_behind(scratch_.path()));
}

TEST_F(RunRecordTest, KeepsItsRowsWhenTheProcessIsKilled) {
  std::optional<RunRecord> open;
  test::DoomedChild child(
      [&] { open.emplace(begun(5000, {.sync_seconds = 1e9, .file_seconds = 1e9})); });
  child.kill();
  EXPECT_THAT(steps(), testing::IsEmpty()) << "whole, and of the start";
  EXPECT_TRUE(run_file_is_behind(scratch_.path()));
  EXPECT_EQ(look_at_log(log_).last_step, 5000);
  RunRecord record = resumed(scratch_.path(), 4000);
  record.append(step_row(4001));
  record.close();
  ASSERT_EQ(steps().size(), 4001U);
  EXPECT_EQ(steps().back(), 4001);
}

TEST_F(RunRecordTest, TakesBackRowsBeyondTheResumedStep) {
  {
    RunRecord record = begun(9);
    record.set_anchors(std::vector<double>{10.0, 20.0});
    record.append(ValidationRow{0, 5.5});
    record.append(ValidationRow{4, 4.5});
    record.append(ValidationRow{8, 3.5});
    for (const std::int64_t step : {3, 6, 9})
      record.append(CheckpointRow{.step = step, .bytes = 10 * step, .stall_s = 0.5});
    // As gathered from the ranks: not sorted by step.
    record.append(span_samples({span_sample(1, 0), span_sample(7, 0), span_sample(2, 1),
                                span_sample(6, 1), span_sample(6, 1)}));
  }
  const std::string before = test::bytes_of(log_);
  RunHeader other = run_header;
  other.deck = {{"run.name", "tiny"}};
  other.hosts = {"node7"};
  {
    RunRecord record = resumed(scratch_.path(), 6, other);
    record.set_anchors(std::vector<double>{30.0});
    record.append(step_row(7));
  }
  EXPECT_TRUE(test::bytes_of(log_).starts_with(before)) << "nothing is removed";
  EXPECT_THAT(steps(), ElementsAre(1, 2, 3, 4, 5, 6, 7));
  for (const char* name : {"loss", "grad_norm", "learning_rate", "seconds", "exposed_s"})
    EXPECT_EQ(column_of<double>(file_, std::string("steps/") + name).size(), 7U) << name;
  EXPECT_THAT(column_of<std::int64_t>(file_, "validation/step"), ElementsAre(0, 4));
  EXPECT_THAT(column_of<std::int64_t>(file_, "checkpoints/step"), ElementsAre(3, 6));
  EXPECT_THAT(column_of<std::int64_t>(file_, "checkpoints/bytes"), ElementsAre(30, 60));
  EXPECT_THAT(column_of<double>(file_, "checkpoints/stall_s"), ElementsAre(0.5, 0.5));
  EXPECT_THAT(column_of<std::int64_t>(file_, "sessions/first_step"), ElementsAre(1, 7));
  EXPECT_THAT(column_of<std::int64_t>(file_, "sessions/ranks"), ElementsAre(3, 1));
  EXPECT_THAT(column_of<double>(file_, "timings/anchors/calendar_s"),
              ElementsAre(10.0, 20.0, 30.0));
  EXPECT_THAT(column_of<std::int64_t>(file_, "timings/anchors/first_step"), ElementsAre(1, 1, 7));
  EXPECT_THAT(spans(), ElementsAre(testing::Pair(1, 0), testing::Pair(2, 1), testing::Pair(6, 1),
                                   testing::Pair(6, 1)));
  const h5::File file = h5::open_file(file_);
  EXPECT_THAT(h5::attribute_names(h5::open_group(file.get(), "deck").get()),
              ElementsAre("run.name"));
  EXPECT_EQ(h5::read_attribute<std::string>(file.get(), "machine"), "node1 node2");
  EXPECT_THAT(h5::Dataset::open(file.get(), "sessions/deck").read_all<std::string>(),
              ElementsAre("run.name: tiny\noptimizer.learning_rate: 0.001\n", "run.name: tiny\n"));
}

TEST_F(RunRecordTest, TakesBackWhatAnEarlierResumeRecorded) {
  begun(9).close();
  {
    RunRecord record = resumed(scratch_.path(), 3);
    for (const std::int64_t step : {4, 5, 6}) record.append(step_row(step));
  }
  const LogFacts found = look_at_log(log_);
  EXPECT_EQ(found.last_step, 6);
  RunRecord record = resumed(scratch_.path(), 5);  // steps 6 to 9 of the first start are not kept
  record.close();
  EXPECT_THAT(steps(), ElementsAre(1, 2, 3, 4, 5));
}

TEST_F(RunRecordTest, KnowsWhichEvaluationsAreToBeMadeUp) {
  RunRecord record = begun(4);
  record.append_dropped(4, true);
  record.append_dropped(4, false);
  EXPECT_EQ(look_at_log(log_).dropped_validation, 4);
  EXPECT_EQ(look_at_log(log_).dropped_evaluation, 4);
  record.append(ValidationRow{2, 1.0});
  EXPECT_EQ(look_at_log(log_).dropped_validation, 4) << "the row is of another step";
  record.append(ValidationRow{4, 1.0});
  EXPECT_EQ(look_at_log(log_).dropped_validation, std::nullopt);
  EXPECT_EQ(look_at_log(log_).dropped_evaluation, 4);
  record.close();
  resumed(scratch_.path(), 4).close();
  EXPECT_EQ(look_at_log(log_).dropped_evaluation, 4);
  resumed(scratch_.path(), 3).close();
  EXPECT_EQ(look_at_log(log_).dropped_evaluation, std::nullopt);
}

TEST_F(RunRecordTest, HasTheBucketsOfEveryStart) {
  begun(9).close();
  RunHeader other = run_header;
  other.buckets = {{"wte", "a", 256, 10, 128}};
  resumed(scratch_.path(), 6, other).close();
  other.buckets = {{"wte", "a", 384, 138, 96}};
  resumed(scratch_.path(), 4, other).close();  // the start after step 6 is undone
  const auto numbers = [&](const char* name) { return column_of<std::int64_t>(file_, name); };
  EXPECT_THAT(numbers("buckets/first_step"), ElementsAre(1, 1, 5));
  EXPECT_THAT(numbers("buckets/bucket"), ElementsAre(0, 1, 0));
  EXPECT_THAT(numbers("buckets/elements"), ElementsAre(96, 192, 384));
  EXPECT_THAT(numbers("buckets/padding"), ElementsAre(2, 0, 138));
  EXPECT_THAT(numbers("buckets/shard_elements"), ElementsAre(32, 64, 96));
  const h5::File file = h5::open_file(file_);
  EXPECT_THAT(h5::Dataset::open(file.get(), "buckets/first_parameter").read_all<std::string>(),
              ElementsAre("b", "wte", "wte"));
}

TEST_F(RunRecordTest, KeepsTheSpansOfEarlierStartsOfAFileThatItWrote) {
  {
    RunRecord record = begun(3);
    record.append(span_samples({span_sample(1, 0), span_sample(3, 0)}));
  }
  EXPECT_THAT(warnings_of_resume(3), testing::IsEmpty());
  EXPECT_THAT(spans(), ElementsAre(testing::Pair(1, 0), testing::Pair(3, 0)));
  std::string changed = test::bytes_of(file_);
  changed[changed.size() / 2] ^= 1;
  test::write_bytes(file_, changed);
  EXPECT_THAT(warnings_of_resume(3), ElementsAre(HasSubstr("was changed by another program")));
  EXPECT_THAT(spans(), testing::IsEmpty());
  EXPECT_EQ(test::bytes_of(file_ + ".changed-1"), changed);
  EXPECT_THAT(steps(), ElementsAre(1, 2, 3));
}

TEST_F(RunRecordTest, KeepsNoMoreSpansThanItMay) {
  RunRecord record = begun(1, {.span_bytes = 3 * sizeof(device::TimeSample)});
  for (std::uint32_t step : {1U, 2U})
    record.append(span_samples({span_sample(step, 0), span_sample(step, 1)}));
  EXPECT_EQ(record.spans_left_out(), 1);
  record.close();
  EXPECT_EQ(spans().size(), 3U);
}

TEST_F(RunRecordTest, SkipsALineThatWasCutOffAndGoesOnAfterIt) {
  begun(3).close();
  add_text("{\"kind\": \"step\", \"step\": 4, \"lo");
  EXPECT_THAT(look_at_log(log_).damaged, testing::IsEmpty());
  {
    RunRecord record = resumed(scratch_.path(), 3);
    record.append(step_row(4));
  }
  EXPECT_THAT(steps(), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(look_at_log(log_).damaged, testing::IsEmpty());
}

TEST_F(RunRecordTest, NamesDamagedLinesAndLeavesThemOut) {
  begun(9).close();
  std::string text = test::bytes_of(log_);
  const auto second = text.find("\"step\": 2,");
  text[second + 8] = '7';  // the checksum does not match
  test::write_bytes(log_, text);
  add_text("somebody's notes\n{\"kind\": \"step\"}\n");
  const LogFacts found = look_at_log(log_);
  const auto line =
      std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(second), '\n') + 1;
  const auto lines = std::ranges::count(text, '\n');
  EXPECT_THAT(found.damaged, ElementsAre(line, lines + 1, lines + 2));
  EXPECT_EQ(lines_text({3, 5}), "lines 3, 5");
  EXPECT_THAT(warnings_of_resume(9), testing::IsEmpty()) << "the caller has what look_at_log found";
  EXPECT_THAT(steps(), ElementsAre(1, 3, 4, 5, 6, 7, 8, 9));
}

TEST_F(RunRecordTest, IgnoresKindsOfLinesThatItDoesNotKnow) {
  begun(2).close();
  const LogFacts before = look_at_log(log_);
  RunLog(log_, RunLog::Open::append).append(log_line("song", field("step", std::int64_t{9})));
  EXPECT_EQ(look_at_log(log_).last_step, before.last_step);
  EXPECT_THAT(warnings_of_resume(2), testing::IsEmpty());
  EXPECT_THAT(steps(), ElementsAre(1, 2));
}

TEST_F(RunRecordTest, WritesItsFileSeldomEnoughToTakeNoTime) {
  double now = 0;  // each reading of the clock advances it by 0.1 s
  RunRecord record =
      RunRecord::create(scratch_.path(), run_header, {.clock = [&now] { return now += 0.1; }});
  const auto written_after = [&](double seconds) {
    const std::size_t before = steps().size();
    now += seconds;
    record.do_due();
    return steps().size() > before;
  };
  record.append(step_row(1));
  EXPECT_FALSE(written_after(30));
  EXPECT_FALSE(written_after(25));
  EXPECT_TRUE(written_after(40));
  record.append(step_row(2));
  record.append(CheckpointRow{.step = 2});
  EXPECT_FALSE(written_after(20)) << "0.3 s were needed, which is more than 0.5 % of that";
  EXPECT_TRUE(written_after(45)) << "a checkpoint asks for it";
  EXPECT_FALSE(written_after(1000)) << "nothing is new";
}

TEST_F(RunRecordTest, GoesOnWhenItsFileCannotBeWrittenAndTriesAgain) {
  std::vector<std::string> said;
  double now = 0;
  std::filesystem::create_directory(file_ + ".tmp");
  RunRecord record = begun(3, {.clock = [&now] { return now; },
                               .warn = [&](const std::string& text) { said.push_back(text); }});
  now += 100;
  record.do_due();
  EXPECT_THAT(said,
              ElementsAre(testing::AllOf(HasSubstr("cannot write"), HasSubstr("run.h5.tmp"),
                                         HasSubstr("a directory is in the place of a file"))));
  EXPECT_FALSE(std::filesystem::exists(file_));
  std::filesystem::remove(file_ + ".tmp");
  now += 100;
  record.do_due();
  EXPECT_THAT(steps(), ElementsAre(1, 2, 3));
}

TEST_F(RunRecordTest, ReplacesWhatOthersMakeOfItsFileWhileItRuns) {
  RunRecord record = begun(3);
  test::write_bytes(file_, "somebody's notes");
  test::write_bytes(file_ + ".tmp", "of a run that was killed");
  record.close();
  EXPECT_THAT(steps(), ElementsAre(1, 2, 3));
  test::write_bytes(file_, "somebody's notes");
  EXPECT_FALSE(run_file_is_behind(scratch_.path())) << "after the end it stays";
}

TEST_F(RunRecordTest, EndsWhenItsLogIsMovedAway) {
  RunRecord record = begun(3);
  std::filesystem::rename(log_, log_ + ".moved");
  try {
    record.sync();
    ADD_FAILURE() << "synced";
  } catch (const StorageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("it was removed or moved away while the run wrote it"));
  }
}

TEST_F(RunRecordTest, NeverOverwritesARecord) {
  test::write_bytes(log_, "somebody's notes");
  EXPECT_THROW(RunRecord::create(scratch_.path(), run_header), UserError);
  EXPECT_EQ(test::bytes_of(log_), "somebody's notes");
  EXPECT_FALSE(std::filesystem::exists(file_));
}

TEST_F(RunRecordTest, RefusesTheRecordOfAnotherRun) {
  RunHeader mine = run_header;
  mine.facts.emplace_back("run_id", "0123456789abcdef");
  RunRecord::create(scratch_.path(), mine).close();
  resumed(scratch_.path(), 0, mine).close();
  const std::string before = test::bytes_of(log_);
  mine.facts.back().second = "fedcba9876543210";
  try {
    resumed(scratch_.path(), 0, mine);
    ADD_FAILURE() << "accepted";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), HasSubstr("the record of another run (0123456789abcdef, and this one "
                                        "is fedcba9876543210)"));
  }
  EXPECT_EQ(test::bytes_of(log_), before);
}

TEST_F(RunRecordTest, ReportsADirectoryThatIsMissingOrHasNoRecord) {
  try {
    RunRecord::create(scratch_ / "none", run_header);
    ADD_FAILURE() << "created";
  } catch (const StorageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("No such file or directory"));
  }
  EXPECT_THROW(expect_record(scratch_.path()), UserError);
  EXPECT_FALSE(look_at_log(log_).exists);
}

}  // namespace
}  // namespace trireme::record
