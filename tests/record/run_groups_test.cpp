// SPDX-License-Identifier: Apache-2.0
// Rows of run.h5 that only some runs have: /evaluation and /noise_scale.
#include <cmath>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "h5/dataset.hpp"
#include "h5/file.hpp"
#include "record/run_record_cases.hpp"

#include "support/scratch_directory.hpp"

namespace trireme::record {
namespace {

using testing::ElementsAre;

TEST(RunGroups, KeepsEachEvaluationSetInAGroupOfItsName) {
  const test::ScratchDirectory scratch;
  const std::string path = scratch / "run.h5";
  {
    RunRecord file = RunRecord::create(scratch.path(), run_header);
    for (const std::int64_t step : {0, 4, 8})
      file.append("choices", "multiple choice: a.bin",
                  EvaluationRow{.step = step, .accuracy = 0.25, .accuracy_error = 0.125});
    file.append("some.text", "text: b",
                EvaluationRow{.step = 8, .loss = 2.5, .bits_per_byte = 1.5});
    file.append(step_row(1));
  }
  EXPECT_THAT(column_of<std::int64_t>(path, "evaluation/choices/step"), ElementsAre(0, 4, 8));
  EXPECT_THAT(column_of<double>(path, "evaluation/choices/accuracy"),
              ElementsAre(0.25, 0.25, 0.25));
  EXPECT_TRUE(std::isnan(column_of<double>(path, "evaluation/choices/loss").at(0)));
  EXPECT_THAT(column_of<double>(path, "evaluation/some.text/loss"), ElementsAre(2.5));
  {
    RunRecord file = resumed(scratch.path(), 4);
    file.append("choices", "multiple choice: c.bin", EvaluationRow{.step = 6, .accuracy = 0.5});
  }
  EXPECT_THAT(column_of<std::int64_t>(path, "evaluation/choices/step"), ElementsAre(0, 4, 6));
  EXPECT_THAT(column_of<double>(path, "evaluation/choices/accuracy"), ElementsAre(0.25, 0.25, 0.5));
  EXPECT_TRUE(column_of<double>(path, "evaluation/some.text/loss").empty());
  const h5::File back = h5::open_file(path);
  const h5::Group sets = h5::open_group(back.get(), "evaluation");
  EXPECT_THAT(h5::attribute_names(sets.get()), ElementsAre("choices", "some.text"));
  EXPECT_EQ(h5::read_attribute<std::string>(sets.get(), "choices"), "multiple choice: c.bin");
}

TEST(RunGroups, KeepsNoiseScalesOfTheStepsBeforeAResumption) {
  const test::ScratchDirectory scratch;
  const std::string path = scratch / "run.h5";
  {
    RunRecord file = RunRecord::create(scratch.path(), run_header);
    for (const std::int64_t step : {2, 4, 6})
      file.append(NoiseScaleRow{.step = step,
                                .leaf_norm_squared = 3,
                                .norm_squared = 2,
                                .gradient_squared = 1.5,
                                .trace = 7,
                                .smoothed_gradient_squared = 1.25,
                                .smoothed_trace = 5,
                                .sequences = 4,
                                .tokens = static_cast<double>(step)});
    file.close();
  }
  RunRecord file = resumed(scratch.path(), 5);
  file.append(NoiseScaleRow{.step = 8, .tokens = 1});
  file.close();
  EXPECT_THAT(column_of<std::int64_t>(path, "noise_scale/step"), ElementsAre(2, 4, 8));
  EXPECT_THAT(column_of<double>(path, "noise_scale/tokens"), ElementsAre(2, 4, 1));
  EXPECT_THAT(column_of<double>(path, "noise_scale/leaf_norm_squared"), ElementsAre(3, 3, 0));
  EXPECT_THAT(column_of<double>(path, "noise_scale/smoothed_trace"), ElementsAre(5, 5, 0));
}

TEST(RunGroups, KeepsNormsOfTheStepsBeforeAResumption) {
  const test::ScratchDirectory scratch;
  {
    RunRecord file = RunRecord::create(scratch.path(), run_header);
    for (const std::int64_t step : {2, 4, 6})
      for (const std::int64_t layer : {0, 1})
        file.append(NormRow{.step = step, .layer = layer, .gradient = 3, .weight = 5, .update = 7});
    file.close();
  }
  RunRecord file = resumed(scratch.path(), 5);
  file.append(NormRow{.step = 8, .gradient = 1});
  file.close();
  const std::string path = scratch / "run.h5";
  EXPECT_THAT(column_of<std::int64_t>(path, "norms/step"), ElementsAre(2, 2, 4, 4, 8));
  EXPECT_THAT(column_of<std::int64_t>(path, "norms/layer"), ElementsAre(0, 1, 0, 1, 0));
  EXPECT_THAT(column_of<double>(path, "norms/gradient"), ElementsAre(3, 3, 3, 3, 1));
  EXPECT_THAT(column_of<double>(path, "norms/update"), ElementsAre(7, 7, 7, 7, 0));
}

}  // namespace
}  // namespace trireme::record
