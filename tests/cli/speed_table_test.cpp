// SPDX-License-Identifier: Apache-2.0
#include "cli/speed_table.hpp"

#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"

#include "h5/dataset.hpp"
#include "h5/file.hpp"
#include "record/run/run_record.hpp"

#include "support/child_process.hpp"
#include "support/scratch_directory.hpp"

namespace trireme::cli {
namespace {

using testing::HasSubstr;

record::RunHeader header_of(const std::string& name) {
  return {.facts = {{"device", "a GPU"}, {"git_sha1", "abc123"}, {"precision", "bf16"}},
          .deck = {{"run.name", name},
                   {"model.preset", "gpt2-124m"},
                   {"model.context", "8"},
                   {"batch.sequences", "16"},
                   {"batch.micro_sequences", "4"}},
          .hosts = {"node1", "node2"},
          .buckets = {},
          .counts = {{"parameters", 7000}, {"ranks", 2}}};
}

/// A record with these rates and 1000 FLOP per token.
std::string recorded(const std::string& directory,
                     const std::string& name,
                     const std::vector<double>& tokens_per_s,
                     bool ended = true) {
  std::filesystem::create_directory(directory);
  auto file = record::RunRecord::create(directory, header_of(name));
  std::int64_t step = 0;
  for (const double rate : tokens_per_s)
    file.append(record::StepRow{
        .step = ++step, .seconds = 2, .tokens_per_s = rate, .cpu_joules = 20 * rate});
  file.set_timing_fact("flops_per_token", 1000, "FLOP");
  if (ended)
    file.set_memory("peak_resident", 4096);
  file.close();
  return directory;
}

std::string refusal(const SpeedRequest& request) {
  try {
    speed_rows(request);
  } catch (const UserError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(SpeedTable, TakesTheMedianAfterTheWarmupBesideGoalAndCeiling) {
  const test::ScratchDirectory scratch;
  const std::string run = recorded(scratch / "a", "gpt2-124m", {1, 100, 400, 300, 200, 500});
  {
    auto file = record::RunRecord::resume(run, header_of("gpt2-124m"), 6,
                                          record::look_at_log(run + "/steps.jsonl"));
    file.close();
  }
  EXPECT_THAT(refusal({.run_directories = {run}}), HasSubstr("started 2 times"));

  const std::string other = recorded(scratch / "b", "gpt2-124m", {1, 100, 400, 300, 200, 500});
  {
    const std::string path = other + "/run.h5";
    const h5::File file(TRIREME_H5(H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT)));
    h5::write_attribute(h5::open_group(file.get(), "timings").get(), "ceiling_flops_per_s", 6e5);
    h5::write_attribute(h5::open_group(file.get(), "memory").get(), "peak_device",
                        std::int64_t{1} << 30);
  }
  const auto rows =
      speed_rows({.run_directories = {other}, .warmup_steps = 1, .goals = {{"gpt2-124m", 240}}});
  ASSERT_EQ(rows.size(), 1U);
  const SpeedRow& row = rows.front();
  EXPECT_EQ(row.steps, 5);
  EXPECT_EQ(row.tokens_per_s, 300);
  EXPECT_EQ(row.lower_quartile, 200);
  EXPECT_EQ(row.upper_quartile, 400);
  EXPECT_EQ(row.share_of_goal, 1.25);
  EXPECT_EQ(row.flops_per_s, 150e3);  // 300 tokens/s of 1000 FLOP on 2 ranks
  EXPECT_EQ(row.share_of_ceiling, 0.25);
  EXPECT_EQ(row.memory_bytes, std::int64_t{1} << 30);
  EXPECT_EQ(row.joules_per_token, 10);
  EXPECT_THAT(speed_table(rows), HasSubstr("125.0 %"));
  EXPECT_THAT(speed_table(rows), HasSubstr("16 by 4 x 8"));
  EXPECT_THAT(speed_table(rows), HasSubstr("on a GPU, abc123"));
}

TEST(SpeedTable, ShowsWhatARunLacks) {
  const test::ScratchDirectory scratch;
  const auto rows = speed_rows({.run_directories = {recorded(scratch / "a", "x", {1, 2})}});
  EXPECT_TRUE(std::isnan(rows.front().goal));
  EXPECT_TRUE(std::isnan(rows.front().share_of_ceiling));
  EXPECT_EQ(rows.front().memory_bytes, 4096);
  EXPECT_THAT(speed_table(rows), testing::Not(HasSubstr("nan")));
  EXPECT_THAT(refusal({.run_directories = {scratch / "a"}, .warmup_steps = 2}),
              HasSubstr("no steps after step 2 are recorded"));
  EXPECT_THAT(refusal({.run_directories = {scratch / "a"}, .goals = {{"y", 1}}}),
              HasSubstr("--goal y"));
  EXPECT_THAT(refusal({.run_directories = {scratch / "none"}}), HasSubstr("no record"));
}

TEST(SpeedTable, LiesInAFileWithUnits) {
  const test::ScratchDirectory scratch;
  const auto rows = speed_rows({.run_directories = {recorded(scratch / "a", "x", {1, 2}),
                                                    recorded(scratch / "b", "y", {1, 4, 5})},
                                .goals = {{"y", 9}}});
  write_speed(scratch / "t.h5", rows);
  const h5::File file = h5::open_file(scratch / "t.h5");
  EXPECT_EQ(h5::read_attribute<std::string>(file.get(), "filetype"), "trireme-speed");
  const auto column = [&](const char* name) {
    return h5::Dataset::open(file.get(), std::string("speed/") + name);
  };
  EXPECT_THAT(column("run").read_all<std::string>(), testing::ElementsAre("x", "y"));
  EXPECT_THAT(column("tokens_per_s").read_all<double>(), testing::ElementsAre(2, 4.5));
  EXPECT_THAT(column("steps").read_all<std::int64_t>(), testing::ElementsAre(1, 2));
  EXPECT_THAT(column("goal").read_all<double>(), testing::ElementsAre(testing::IsNan(), 9));
  EXPECT_EQ(h5::read_attribute<std::string>(column("memory").id(), "units"), "byte");
  EXPECT_THROW(write_speed(scratch / "t.h5", rows), StorageError);
  EXPECT_TRUE(std::filesystem::exists(scratch / "t.h5")) << "the file of somebody else";
}

TEST(SpeedTable, IsRemovedWhereItsDiskIsFull) {
  const test::ScratchDirectory scratch;
  const auto rows = speed_rows({.run_directories = {recorded(scratch / "a", "x", {1, 2})}});
  const auto write = [&] { write_speed(scratch / "t.h5", rows); };
  EXPECT_EXIT(test::exit_with_a_full_disk(1000, write), testing::ExitedWithCode(3),
              "File too large");
  EXPECT_FALSE(std::filesystem::exists(scratch / "t.h5"));
}

TEST(SpeedTable, HasNoMemoryOfARunThatHasNotEnded) {
  const test::ScratchDirectory scratch;
  for (const bool ended : {true, false}) {
    const auto rows = speed_rows(
        {.run_directories = {recorded(scratch / (ended ? "b" : "a"), "x", {1, 2}, ended)}});
    EXPECT_THAT(speed_table(rows), HasSubstr(ended ? "       4 KiB\n" : "           -\n"));
  }
}

}  // namespace
}  // namespace trireme::cli
