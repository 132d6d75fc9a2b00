// SPDX-License-Identifier: Apache-2.0
// `trireme speed RUN_DIR …`: how fast finished runs were, one row each, from their records:
// tokens/s beside a goal, and the share of what matrix products reached by themselves in the same
// run (bench/ceiling.hpp). The same rows go into an HDF5 file, so that a figure can be traced to the
// program and the machine that it was measured with:
//
//   /        attributes filetype "trireme-speed", version [1, 0]
//   /speed   one dataset per column of SpeedRow, each with `unit` and `help` (columns.hpp)
//
// 1. A rate is the median over the steps after the warm-up; the quartiles are given beside it.
// 2. A run that was resumed is refused: its steps belong to more than one start.
// 3. What a run does not have (a goal that was not set, a ceiling that was not measured because it
//    stopped early or kept no spans) is NaN in the file and "-" in the text.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace trireme::cli {

struct SpeedRequest {
  std::vector<std::string> run_directories{};
  std::int64_t warmup_steps = 1;                        ///< left out
  std::vector<std::pair<std::string, double>> goals{};  ///< run.name, tokens/s
};

struct SpeedRow {
  std::string run;    ///< run.name
  std::string model;  ///< model.preset
  std::int64_t parameters = 0;
  std::string precision;
  std::int64_t ranks = 0;
  std::int64_t context = 0, sequences = 0, micro_sequences = 0;
  std::int64_t steps = 0;  ///< that the rate is of
  double tokens_per_s = 0, lower_quartile = 0, upper_quartile = 0;
  double goal = 0, share_of_goal = 0;
  double flops_per_s = 0;  ///< of one rank, as the ceiling
  double ceiling_flops_per_s = 0, share_of_ceiling = 0;
  std::int64_t memory_bytes = 0;  ///< highest of one rank: on its GPU, or resident in its process
  std::string device, commit, date_and_time;
};

/// Throws UserError naming what is no record of a run, was resumed, ends within the warm-up, or is
/// a goal of none of the runs.
std::vector<SpeedRow> speed_rows(const SpeedRequest& request);

std::string speed_table(const std::vector<SpeedRow>& rows);
/// A new file. Throws StorageError.
void write_speed(const std::string& path, const std::vector<SpeedRow>& rows);

}  // namespace trireme::cli
