// SPDX-License-Identifier: Apache-2.0
#include "cli/speed_table.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include <fmt/format.h>

#include "base/error.hpp"
#include "base/quantile.hpp"
#include "base/text.hpp"
#include "files/output_file.hpp"

#include "h5/dataset.hpp"
#include "h5/file.hpp"
#include "record/run/columns.hpp"

namespace trireme::cli {
namespace {

class Record {
 public:
  explicit Record(const std::string& directory) : path_(directory + "/run.h5") {
    if (!std::filesystem::exists(path_))
      refuse("there is no record of a run's steps");
    file_ = h5::open_file(path_);
    if (const auto sessions = column<std::int64_t>("sessions/first_step").size(); sessions != 1)
      refuse(fmt::format(
          "the run was started {} times, but only runs with a single start can be compared",
          sessions));
  }

  [[noreturn]] void refuse(const std::string& why) const { throw UserError(Place{path_}, why); }

  template <class T>
  [[nodiscard]] std::vector<T> column(const char* name) const {
    return h5::Dataset::open(file_.get(), name).read_all<T>();
  }
  /// NaN in files from before there was such a column.
  [[nodiscard]] std::vector<double> column_or_unknown(const char* name, std::size_t rows) const {
    return h5::exists(file_.get(), name) ? column<double>(name)
                                         : std::vector(rows, record::not_known);
  }
  template <class T = std::string>
  [[nodiscard]] T fact(const char* name) const {
    return h5::read_attribute<T>(file_.get(), name);
  }
  template <class T = std::string>
  [[nodiscard]] T key(const char* name) const {
    return h5::read_attribute<T>(group("deck").get(), name);
  }
  [[nodiscard]] double timing(const char* name) const {
    const h5::Group timings = group("timings");
    return h5::has_attribute(timings.get(), name) ? h5::read_attribute<double>(timings.get(), name)
                                                  : record::not_known;
  }
  /// Peak memory of the device, if it has its own memory, else of the process.
  [[nodiscard]] std::int64_t memory() const {
    const h5::Group memory = group("memory");
    for (const char* name : {"peak_device", "peak_resident"})
      if (h5::has_attribute(memory.get(), name))
        return h5::read_attribute<std::int64_t>(memory.get(), name);
    return 0;
  }

 private:
  [[nodiscard]] h5::Group group(const char* name) const {
    return h5::open_group(file_.get(), name);
  }

  std::string path_;
  h5::File file_;
};

/// tokens/s of the steps after the warm-up.
std::vector<double> rates_of(const Record& record, std::int64_t warmup_steps) {
  const auto steps = record.column<std::int64_t>("steps/step");
  auto rates = record.column<double>("steps/tokens_per_s");
  const auto first = std::ranges::upper_bound(steps, warmup_steps) - steps.begin();
  rates.erase(rates.begin(), rates.begin() + std::min(first, std::ssize(rates)));
  if (rates.empty())
    record.refuse(
        fmt::format("no steps after step {} are recorded. Lower --warmup, or, if the run "
                    "was killed, add its rows with `trireme record`",
                    warmup_steps));
  return rates;
}

/// Energy that is known of the last `steps` steps over their tokens; NaN if none is. A counter may
/// advance more slowly than steps end, so single rows say little.
double joules_per_token(const Record& record, std::size_t steps) {
  const auto rate = record.column<double>("steps/tokens_per_s");
  const auto seconds = record.column<double>("steps/seconds");
  const auto cpu = record.column_or_unknown("steps/cpu_joules", rate.size());
  const auto gpu = record.column_or_unknown("steps/gpu_joules", rate.size());
  double joules = 0, tokens = 0;
  for (std::size_t i = rate.size() - steps; i < rate.size(); ++i)
    if (!std::isnan(cpu[i]) || !std::isnan(gpu[i])) {
      joules += (std::isnan(cpu[i]) ? 0 : cpu[i]) + (std::isnan(gpu[i]) ? 0 : gpu[i]);
      tokens += rate[i] * seconds[i];
    }
  return joules > 0 ? joules / tokens : record::not_known;
}

SpeedRow row_of(const std::string& directory, const SpeedRequest& request) {
  const Record record(directory);
  const auto rates = rates_of(record, request.warmup_steps);
  SpeedRow row{.run = record.key("run.name"),
               .model = record.key("model.preset"),
               .parameters = record.fact<std::int64_t>("parameters"),
               .precision = record.fact("precision"),
               .ranks = record.fact<std::int64_t>("ranks"),
               .context = record.key<std::int64_t>("model.context"),
               .sequences = record.key<std::int64_t>("batch.sequences"),
               .micro_sequences = record.key<std::int64_t>("batch.micro_sequences"),
               .steps = std::ssize(rates),
               .tokens_per_s = median(rates),
               .lower_quartile = quantile(rates, 0.25),
               .upper_quartile = quantile(rates, 0.75),
               .goal = record::not_known,
               .ceiling_flops_per_s = record.timing("ceiling_flops_per_s"),
               .joules_per_token = joules_per_token(record, rates.size()),
               .memory_bytes = record.memory(),
               .device = record.fact("device"),
               .commit = record.fact("git_sha1"),
               .date_and_time = record.fact("date_and_time")};
  for (const auto& [run, goal] : request.goals)
    if (run == row.run)
      row.goal = goal;
  row.share_of_goal = row.tokens_per_s / row.goal;
  row.flops_per_s =
      row.tokens_per_s * record.timing("flops_per_token") / static_cast<double>(row.ranks);
  row.share_of_ceiling = row.flops_per_s / row.ceiling_flops_per_s;
  return row;
}

std::string percent(double share) {
  return std::isnan(share) ? "-" : fmt::format("{:.1f} %", 100 * share);
}

/// FLOP/s as TFLOP/s.
std::string tera(double rate) {
  return std::isnan(rate) ? "-" : fmt::format("{:.4g}", rate / 1e12);
}

}  // namespace

std::vector<SpeedRow> speed_rows(const SpeedRequest& request) {
  std::vector<SpeedRow> rows;
  rows.reserve(request.run_directories.size());
  for (const std::string& directory : request.run_directories)
    rows.push_back(row_of(directory, request));
  for (const auto& goal : request.goals)
    if (std::ranges::find(rows, goal.first, &SpeedRow::run) == rows.end())
      throw UserError(fmt::format("--goal {}: none of the given runs has this name", goal.first));
  return rows;
}

std::string speed_table(const std::vector<SpeedRow>& rows) {
  std::string text =
      fmt::format("{:<20}{:<10}{:>6}{:>20}{:>11}{:>23}{:>10}{:>10}{:>14}{:>10}{:>12}{:>12}{:>12}\n",
                  "run", "precision", "ranks", "batch", "tokens/s", "half of the steps", "goal",
                  "of goal", "TFLOP/s/rank", "ceiling", "of ceiling", "J/token", "memory");
  for (const SpeedRow& row : rows)
    text += fmt::format(
        "{:<20}{:<10}{:>6}{:>20}{:>11.0f}{:>23}{:>10}{:>10}{:>14}{:>10}{:>12}{:>12}{:>12}\n",
        row.run, row.precision, row.ranks,
        fmt::format("{} by {} x {}", row.sequences, row.micro_sequences, row.context),
        row.tokens_per_s, fmt::format("{:.0f} to {:.0f}", row.lower_quartile, row.upper_quartile),
        std::isnan(row.goal) ? "-" : fmt::format("{:.0f}", row.goal), percent(row.share_of_goal),
        tera(row.flops_per_s), tera(row.ceiling_flops_per_s), percent(row.share_of_ceiling),
        std::isnan(row.joules_per_token) ? "-" : fmt::format("{:.3g}", row.joules_per_token),
        row.memory_bytes > 0 ? bytes_text(row.memory_bytes) : "-");
  std::string before;
  for (const SpeedRow& row : rows) {
    const std::string on = fmt::format("on {}, {}", row.device, row.commit);
    if (on != before)
      text += fmt::format("{} {}, {}\n", row.run, on, row.date_and_time);
    before = on;
  }
  return text;
}

void write_speed(const std::string& path, const std::vector<SpeedRow>& rows) {
  h5::File file = h5::create_file(path);
  files::complete_new_file(path, [&] {
    h5::write_attribute(file.get(), "filetype", "trireme-speed");
    h5::write_attribute(file.get(), "version", std::vector<std::int64_t>{1, 0});
    {
      record::Table<SpeedRow> table(file);
      for (const SpeedRow& row : rows) table.add(row);
      table.write();
    }
    h5::close(std::move(file));
  });
}

}  // namespace trireme::cli
