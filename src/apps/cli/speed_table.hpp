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

#include "record/run/rows.hpp"

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

  static constexpr record::TableInfo table{"", "speed"};
  static void columns(auto& r, auto&& v) {
    v("run", r.run, "", "run.name of the deck.");
    v("model", r.model, "", "model.preset of the deck.");
    v("parameters", r.parameters, "elements", "Number of trained parameters.");
    v("precision", r.precision, "", "Data type of activations and weights.");
    v("ranks", r.ranks, "ranks", "Number of ranks.");
    v("context", r.context, "tokens", "Length of a sequence.");
    v("sequences", r.sequences, "sequences", "Sequences of a step on all ranks.");
    v("micro_sequences", r.micro_sequences, "sequences", "Sequences of a micro-batch.");
    v("steps", r.steps, "steps", "Steps after the warm-up, used for the rates.");
    v("tokens_per_s", r.tokens_per_s, "tokens/s", "Median over the steps, of all ranks.");
    v("lower_quartile", r.lower_quartile, "tokens/s", "Lower quartile over the steps.");
    v("upper_quartile", r.upper_quartile, "tokens/s", "Upper quartile over the steps.");
    v("goal", r.goal, "tokens/s", "The goal of --goal. NaN: none was set.");
    v("share_of_goal", r.share_of_goal, "1", "tokens_per_s divided by goal.");
    v("flops_per_s", r.flops_per_s, "FLOP/s",
      "Median over the steps, of one rank, by the model's FLOP formula.");
    v("ceiling_flops_per_s", r.ceiling_flops_per_s, "FLOP/s",
      "Rate of matrix products alone on one rank, in the same run.");
    v("share_of_ceiling", r.share_of_ceiling, "1", "flops_per_s divided by ceiling_flops_per_s.");
    v("joules_per_token", r.joules_per_token, "J",
      "Median over the steps: energy of CPUs, memory and GPUs. NaN: not known.");
    v("memory", r.memory_bytes, "byte",
      "Maximum over ranks: memory in use on the GPU, or resident set size.");
    v("device", r.device, "", "Device of rank 0.");
    v("git_sha1", r.commit, "", "Git commit of the program.");
    v("date_and_time", r.date_and_time, "", "Start of the run, UTC.");
  }
};

/// Throws UserError for a directory without a record, a run that was resumed or ended within the
/// warm-up, and a goal that matches no run.
std::vector<SpeedRow> speed_rows(const SpeedRequest& request);

std::string speed_table(const std::vector<SpeedRow>& rows);
/// Writes a new file. Throws StorageError.
void write_speed(const std::string& path, const std::vector<SpeedRow>& rows);

}  // namespace trireme::cli
