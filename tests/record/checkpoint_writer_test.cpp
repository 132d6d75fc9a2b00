// SPDX-License-Identifier: Apache-2.0
#include "record/checkpoint/checkpoint_writer.hpp"

#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/error.hpp"

#include "h5/dataset.hpp"
#include "h5/file.hpp"
#include "h5/handle.hpp"
#include "record/checkpoint_cases.hpp"
#include "record/run/run_record.hpp"

#include "support/checkpoint_reader.hpp"
#include "support/scratch_directory.hpp"

namespace trireme::record {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

/// A parameter of 8 blocks, so that a write can be interrupted.
constexpr std::int64_t large = std::int64_t{1} << 24;

struct OneRank {
  test::ScratchDirectory scratch;
  std::unique_ptr<comm::World> world = comm::make_self_world();
  layout::Plan plan{{{"w", {large}, false, false}}, {}};
  std::vector<float> values = std::vector<float>(large, 0.5F);
  CheckpointWriter writer{scratch.path(), plan, 0, *world};

  [[nodiscard]] std::vector<Slab> slabs() const {
    return {{"master", ParameterIndex(0), 0, view_of(values.data(), large)}};
  }
  [[nodiscard]] std::string directory(std::int64_t step) const {
    return scratch / ("checkpoints/step-0000000" + std::to_string(step));
  }
};

TEST(CheckpointWriter, RefusesWhatIsNotFiniteAndKeepsTheOlderOnes) {
  OneRank run;
  run.writer.start(facts_of(1), run.slabs());
  run.writer.finish();
  for (const float bad :
       {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
        std::numeric_limits<float>::quiet_NaN()}) {
    const float kept = std::exchange(run.values[large - 7], bad);
    run.writer.start(facts_of(2), run.slabs());
    try {
      run.writer.finish();
      ADD_FAILURE() << "written";
    } catch (const UserError& error) {
      EXPECT_THAT(error.what(), HasSubstr("step 2: master of w is not finite on rank 0"));
    }
    EXPECT_FALSE(fs::exists(run.directory(2)));
    EXPECT_FALSE(fs::exists(run.directory(2) + ".tmp"));
    run.values[large - 7] = kept;
  }
  EXPECT_TRUE(fs::exists(run.directory(1)));
  run.values[3] = std::numeric_limits<float>::max();  // large, and a number
  run.writer.start(facts_of(2), run.slabs());
  run.writer.finish();
  EXPECT_TRUE(fs::exists(run.directory(2)));
}

TEST(CheckpointWriter, WritesTheSameBytesWhetherOrNotTheRunWaits) {
  OneRank run;
  save_checkpoint(run.scratch.path(), run.plan, facts_of(1), run.slabs(), 0, *run.world);

  {
    const h5::LibraryLock lock;  // the thread cannot create its file before this is released
    run.writer.start(facts_of(2), run.slabs());
    EXPECT_TRUE(run.writer.under_way());
    EXPECT_TRUE(run.writer.busy());
  }
  while (run.writer.busy()) {
    EXPECT_FALSE(fs::exists(run.directory(2))) << "visible before it is whole";
    ::usleep(100);  // polling interval; the loop ends when the thread does
  }
  EXPECT_FALSE(run.writer.advance()) << "the manifest comes after the files";
  const auto saved = run.writer.advance();
  ASSERT_TRUE(saved);
  EXPECT_FALSE(run.writer.under_way());

  EXPECT_EQ(saved->directory, run.directory(2));
  EXPECT_GT(saved->seconds, 0);
  EXPECT_GT(saved->bytes, 4 * large);
  EXPECT_EQ(test::bytes_of(run.directory(1) + "/rank-00000.h5"),
            test::bytes_of(run.directory(2) + "/rank-00000.h5"));
  const CheckpointReader first(run.directory(1)), second(run.directory(2));
  EXPECT_EQ(first.content_hash("master", "w"), second.content_hash("master", "w"));
}

TEST(CheckpointWriter, LetsTheRecordGoOn) {
  OneRank run;
  RunRecord record = RunRecord::create(run.scratch.path(), {{}, {}, {"node"}, {}},
                                       {.file_seconds = 0, .file_share = 1e9});
  std::int64_t rows = 0, checkpoint = 0;
  // Repeats until a checkpoint was in progress during several rows. That may take several attempts
  // if this thread gets no CPU time. A record that waits for checkpoints would never pass.
  for (std::int64_t meanwhile = 0; meanwhile < 2;) {
    run.writer.start(facts_of(++checkpoint), run.slabs());
    for (meanwhile = 0; run.writer.busy(); ++meanwhile) {
      record.append(StepRow{.step = ++rows});
      record.do_due();  // writes run.h5
    }
    run.writer.finish();
  }
  record.close();
  const h5::File file = h5::open_file(run.scratch / "run.h5");
  EXPECT_EQ(h5::Dataset::open(file.get(), "steps/step").elements(), rows);
  EXPECT_EQ(CheckpointReader(newest_checkpoint(run.scratch.path())->directory).facts().step,
            checkpoint);
}

TEST(CheckpointWriter, TakesOneCheckpointAtATime) {
  OneRank run;
  EXPECT_THROW(run.writer.advance(), ContractError);
  run.writer.start(facts_of(1), run.slabs());
  EXPECT_THROW(run.writer.start(facts_of(2), run.slabs()), ContractError);
  run.writer.finish();
  run.writer.start(facts_of(2), run.slabs());
  EXPECT_EQ(run.writer.finish().directory, run.directory(2));
}

TEST(CheckpointWriter, LeavesNothingThatLooksCompleteWhenItEndsEarly) {
  OneRank run;
  run.writer.start(facts_of(1), run.slabs());
  run.writer.finish();
  {
    CheckpointWriter hasty(run.scratch.path(), run.plan, 0, *run.world);
    hasty.start(facts_of(2), run.slabs());
  }
  EXPECT_EQ(newest_checkpoint(run.scratch.path())->step, 1);
  EXPECT_TRUE(fs::exists(run.directory(2) + ".tmp"));
  run.writer.start(facts_of(3), run.slabs());
  run.writer.finish();
  EXPECT_FALSE(fs::exists(run.directory(2) + ".tmp"));
}

TEST(CheckpointWriter, FailsWhereTheRunWaitsAndStartsAgain) {
  OneRank run;
  run.writer.start(facts_of(1), run.slabs());
  fs::rename(run.scratch / "checkpoints", run.scratch / "elsewhere");
  try {
    run.writer.finish();
    FAIL() << "the manifest had no place to go";
  } catch (const StorageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("No such file or directory"));
  }
  EXPECT_FALSE(run.writer.under_way());
  run.writer.start(facts_of(2), run.slabs());
  EXPECT_EQ(run.writer.finish().directory, run.directory(2));
  EXPECT_EQ(CheckpointReader(run.directory(2)).facts().step, 2);
}

}  // namespace
}  // namespace trireme::record
