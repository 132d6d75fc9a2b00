// SPDX-License-Identifier: Apache-2.0
// `trireme speed RUN_DIR …`: compares the speed of finished runs from their records, one row each:
// tokens/s, optionally relative to a goal, and the share of the matrix-product ceiling measured in
// the same run (bench/ceiling.hpp). The rows can be written to an HDF5 file that names the program
// and the machine:
//
//   /        attributes filetype "trireme-speed", version [1, 0]
//   /speed   one dataset per column of SpeedRow, each with `unit` and `help` (columns.hpp)
//
// 1. A rate is the median over the steps after the warm-up, with its quartiles.
// 2. A resumed run is refused, because its steps belong to more than one start.
// 3. Missing values, such as a goal that was not set or a ceiling that was not measured, are NaN in
//    the file and "-" in the text.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace trireme::cli {

struct SpeedRequest {
  std::vector<std::string> run_directories{};
  std::int64_t warmup_steps = 1;                        ///< omitted from the rates
  std::vector<std::pair<std::string, double>> goals{};  ///< run.name, tokens/s
};

struct SpeedRow {
  std::string run;    ///< run.name
  std::string model;  ///< model.preset
  std::int64_t parameters = 0;
  std::string precision;
  std::int64_t ranks = 0;
  std::int64_t context = 0, sequences = 0, micro_sequences = 0;
  std::int64_t steps = 0;  ///< used for the rate
  double tokens_per_s = 0, lower_quartile = 0, upper_quartile = 0;
  double goal = 0, share_of_goal = 0;
  double flops_per_s = 0;  ///< of one rank, like the ceiling
  double ceiling_flops_per_s = 0, share_of_ceiling = 0;
  double joules_per_token = 0;
  std::int64_t memory_bytes = 0;  ///< maximum over ranks: GPU memory, or resident set size
  std::string device, commit, date_and_time;
};

/// Throws UserError for a directory without a record, a run that was resumed or ended within the
/// warm-up, and a goal that matches no run.
std::vector<SpeedRow> speed_rows(const SpeedRequest& request);

std::string speed_table(const std::vector<SpeedRow>& rows);
/// Writes a new file. Throws StorageError.
void write_speed(const std::string& path, const std::vector<SpeedRow>& rows);

}  // namespace trireme::cli
