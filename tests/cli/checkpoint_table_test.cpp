// SPDX-License-Identifier: Apache-2.0
#include "cli/checkpoint_table.hpp"

#include <cmath>
#include <filesystem>
#include <limits>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"

#include "comm/control/world.hpp"

#include "record/checkpoint/checkpoint.hpp"
#include "record/run/run_record.hpp"

#include "support/scratch_directory.hpp"

namespace trireme::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

record::CheckpointFacts facts_of(std::int64_t step) {
  record::CheckpointFacts facts;
  facts.step = step;
  return facts;
}

/// Checkpoints of steps 2 and 4, a milestone, and a record of 4 steps whose last loss is not a number.
class CheckpointTableTest : public testing::Test {
 protected:
  CheckpointTableTest() {
    const auto world = comm::make_self_world();
    const layout::Plan plan({{"w", {100}, false, false}}, {1, 1000, layout::Padding::none});
    const std::vector<float> values(100, 1.5F);
    const float* data = values.data();
    const record::Slab slab{"master", ParameterIndex{}, 0, view_of(data, 100)};
    for (const std::int64_t step : {2, 4})
      record::save_checkpoint(scratch_.path(), plan, facts_of(step), {&slab, 1}, {0, 4}, *world);
    auto file = record::RunRecord::create(scratch_.path(), {});
    for (std::int64_t step = 1; step <= 4; ++step)
      file.append(
          record::StepRow{.step = step, .loss = step == 4 ? not_a_number : 0.5 * double(step)});
    file.append(record::ValidationRow{2, 7.25});
    file.close();
  }
  [[nodiscard]] std::string checkpoint(const std::string& name) const {
    return scratch_ / ("checkpoints/" + name);
  }
  void damage(const std::string& name) const {
    const std::string path = checkpoint(name) + "/rank-00000.h5";
    std::string bytes = test::bytes_of(path);
    const float value = 1.5F;
    const auto at = bytes.find(std::string(reinterpret_cast<const char*>(&value), sizeof value));
    ASSERT_NE(at, std::string::npos);
    bytes[at] = static_cast<char>(bytes[at] ^ 1);
    test::write_bytes(path, bytes);
  }

  const test::ScratchDirectory scratch_;
};

TEST_F(CheckpointTableTest, ListsStepsSizesAndLosses) {
  const auto table = checkpoint_table(scratch_.path() + "/", false);
  ASSERT_EQ(table.lines.size(), 2U);
  EXPECT_EQ(table.lines[0].step, 2);
  EXPECT_EQ(static_cast<std::uintmax_t>(table.lines[0].bytes),
            std::filesystem::file_size(checkpoint("step-00000002/rank-00000.h5")));
  EXPECT_EQ(table.lines[0].ranks, 1);
  EXPECT_EQ(table.lines[0].loss, 1.0);
  EXPECT_EQ(table.lines[0].validation_loss, 7.25);
  EXPECT_FALSE(table.lines[0].milestone);
  EXPECT_TRUE(table.lines[1].milestone);
  EXPECT_TRUE(std::isnan(table.lines[1].loss));
  EXPECT_EQ(table.note, "");
  const std::string text = checkpoint_text(table);
  EXPECT_THAT(text, HasSubstr("1.0000      7.2500  whole\n"));
  EXPECT_THAT(text, HasSubstr("-           -  whole, milestone\n"));
  const std::string json = checkpoint_json(table);
  EXPECT_THAT(json, HasSubstr("\"step\": 2,"));
  EXPECT_THAT(json, HasSubstr("\"loss\": null,"));
  EXPECT_THAT(json, HasSubstr("\"state\": \"whole\",\n   \"damage\": []\n"));
}

TEST_F(CheckpointTableTest, OnlyVerifyReadsTheBytes) {
  damage("step-00000002");
  auto table = checkpoint_table(scratch_.path(), false);
  EXPECT_EQ(table.lines[0].state, CheckpointState::whole);
  EXPECT_EQ(checkpoint_verdict(table), ExitCode::done);
  table = checkpoint_table(scratch_.path(), true);
  EXPECT_EQ(table.lines[0].state, CheckpointState::damaged);
  EXPECT_EQ(table.lines[1].state, CheckpointState::verified);
  EXPECT_EQ(checkpoint_verdict(table), ExitCode::user_error);
  EXPECT_THAT(damage_lines(table),
              testing::ElementsAre(HasSubstr("step-00000002/rank-00000.h5: master/w, elements [0, "
                                             "100), does not match its checksum")));
  EXPECT_THAT(checkpoint_json(table),
              HasSubstr("\"state\": \"damaged\",\n   \"damage\": [\n    {\n     \"file\": "));
}

TEST_F(CheckpointTableTest, WhatTheManifestShowsIsReportedWithoutVerify) {
  std::filesystem::remove(checkpoint("step-00000004/rank-00000.h5"));
  const auto table = checkpoint_table(scratch_.path(), false);
  EXPECT_EQ(table.lines[1].state, CheckpointState::damaged);
  EXPECT_THAT(damage_lines(table), testing::ElementsAre(HasSubstr("rank-00000.h5 is missing")));
}

TEST_F(CheckpointTableTest, WhatCannotBeReadIsNotCalledDamaged) {
  const std::string manifest = checkpoint("step-00000004/manifest.h5");
  std::filesystem::remove(manifest);
  std::filesystem::create_directory(manifest);
  for (const bool verify : {false, true}) {
    const auto table = checkpoint_table(scratch_.path(), verify);
    EXPECT_EQ(table.lines[1].state, CheckpointState::unreadable);
    EXPECT_EQ(checkpoint_verdict(table), ExitCode::environment);
    EXPECT_THAT(damage_lines(table),
                testing::ElementsAre(AllOf(HasSubstr("a directory is in the place of a file"),
                                           Not(HasSubstr("damaged")))));
    EXPECT_THAT(checkpoint_text(table), HasSubstr("-  unreadable\n"));
    EXPECT_THAT(checkpoint_json(table),
                AllOf(HasSubstr("\"state\": \"unreadable\""), HasSubstr("\"unreadable\": true\n")));
  }
  damage("step-00000002");
  const auto table = checkpoint_table(scratch_.path(), true);
  EXPECT_EQ(table.lines[0].state, CheckpointState::damaged);
  EXPECT_EQ(checkpoint_verdict(table), ExitCode::user_error);
}

TEST_F(CheckpointTableTest, ARecordThatCannotBeReadCostsTheLossesAlone) {
  test::write_bytes(scratch_ / "steps.jsonl", "no lines");
  auto table = checkpoint_table(scratch_.path(), true);
  EXPECT_EQ(table.lines.size(), 2U);
  EXPECT_TRUE(std::isnan(table.lines[0].loss));
  EXPECT_THAT(table.note, HasSubstr("steps.jsonl"));
  EXPECT_EQ(checkpoint_verdict(table), ExitCode::done);
  std::filesystem::remove(scratch_ / "steps.jsonl");
  table = checkpoint_table(scratch_.path(), false);
  EXPECT_THAT(checkpoint_text(table), HasSubstr("no losses: "));
}

TEST(CheckpointTable, OfNothing) {
  const test::ScratchDirectory scratch;
  EXPECT_THAT(checkpoint_text(checkpoint_table(scratch.path(), true)),
              HasSubstr("There are no checkpoints in "));
  EXPECT_THAT(checkpoint_json(checkpoint_table(scratch.path(), true)),
              HasSubstr("\"checkpoints\": []"));
  EXPECT_THROW(checkpoint_table(scratch / "none", false), UserError);
}

}  // namespace
}  // namespace trireme::cli
