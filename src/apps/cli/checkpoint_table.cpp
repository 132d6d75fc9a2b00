// SPDX-License-Identifier: Apache-2.0
#include "cli/checkpoint_table.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/json.hpp"
#include "base/key.hpp"
#include "base/text.hpp"
#include "files/path.hpp"

#include "record/run/log_line.hpp"
#include "record/run/run_directory.hpp"
#include "record/run/run_log.hpp"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

using Losses = std::map<std::int64_t, double>;

double loss_at(const Losses& losses, std::int64_t step) {
  const auto found = losses.find(step);
  return found == losses.end() ? record::not_known : found->second;
}

/// Fills in the losses. If the record is missing or damaged, the table has no losses.
void add_losses(CheckpointTable& table) {
  const std::string path = fmt::format("{}/{}", table.run_directory, record::run_log_name);
  try {
    const record::LogFacts found = record::look_at_log(path);
    if (found.lines == 0) {
      table.note = path + ": there is no record of a run";
      return;
    }
    Losses training, validation;
    record::read_rows<record::StepRow>(
        path, found.rewinds, [&](const record::StepRow& row) { training[row.step] = row.loss; });
    record::read_rows<record::ValidationRow>(
        path, found.rewinds,
        [&](const record::ValidationRow& row) { validation[row.step] = row.loss; });
    for (CheckpointLine& line : table.lines) {
      line.loss = loss_at(training, line.step);
      line.validation_loss = loss_at(validation, line.step);
    }
  } catch (const StorageError& error) {
    table.note = error.what();
  }
}

/// The state for `damage`; `well` if there is none.
CheckpointState state_of(const std::vector<record::CheckpointDamage>& damage,
                         CheckpointState well) {
  if (damage.empty())
    return well;
  return std::ranges::all_of(damage, &record::CheckpointDamage::unreadable)
             ? CheckpointState::unreadable
             : CheckpointState::damaged;
}

std::string loss_text(double loss) {
  return std::isnan(loss) ? "-" : fmt::format("{:.4f}", loss);
}

}  // namespace

CheckpointTable checkpoint_table(const std::string& run_directory, bool verify) {
  CheckpointTable table{record::without_end_slashes(run_directory), {}, ""};
  std::error_code problem;
  if (!files::exists(table.run_directory) || !fs::is_directory(table.run_directory, problem))
    throw UserError(Place{run_directory}, "there is no run directory");
  if (!fs::exists(table.run_directory + "/checkpoints", problem) &&
      record::newest_checkpoint_in(table.run_directory))
    throw UserError(Place{run_directory},
                    "this is a directory of checkpoints. Name the run directory around it");
  for (const auto& found : record::list_checkpoints(table.run_directory)) {
    CheckpointLine line{found};
    if (!found.whole)
      line.damage.push_back({found.directory, found.problem, found.unreadable});
    line.state = state_of(line.damage, CheckpointState::whole);
    if (verify) {
      line.damage = record::damage_of(line.directory);
      if (!fs::exists(line.directory, problem))
        continue;  // the active run has removed it
      line.state = state_of(line.damage, CheckpointState::verified);
    }
    table.lines.push_back(std::move(line));
  }
  if (!table.lines.empty())
    add_losses(table);
  return table;
}

std::string checkpoint_text(const CheckpointTable& table) {
  if (table.lines.empty())
    return fmt::format("There are no checkpoints in {}.\n", table.run_directory);
  std::string text = fmt::format("{:>10}  {:>10}  {:>5}  {:<25}  {:>8}  {:>10}  {}\n", "step",
                                 "size", "ranks", "written", "loss", "validation", "state");
  for (const CheckpointLine& line : table.lines) {
    text += fmt::format("{:>10}  {:>10}  {:>5}  {:<25}  {:>8}  {:>10}  {}{}\n", line.step,
                        bytes_text(line.bytes), line.ranks, line.date_and_time,
                        loss_text(line.loss), loss_text(line.validation_loss), word(line.state),
                        line.milestone ? ", milestone" : "");
  }
  if (!table.note.empty())
    text += "no losses: " + table.note + "\n";
  return text;
}

std::vector<std::string> damage_lines(const CheckpointTable& table) {
  std::vector<std::string> lines;
  for (const CheckpointLine& line : table.lines)
    for (const record::CheckpointDamage& one : line.damage)
      lines.push_back(one.file + ": " + one.text);
  return lines;
}

std::string checkpoint_json(const CheckpointTable& table) {
  Json json = {
      {"run_directory", table.run_directory}, {"note", table.note}, {"checkpoints", Json::array()}};
  for (const CheckpointLine& line : table.lines) {
    Json damage = Json::array();
    for (const record::CheckpointDamage& one : line.damage)
      damage.push_back({{"file", one.file}, {"text", one.text}, {"unreadable", one.unreadable}});
    json["checkpoints"].push_back({{"step", line.step},
                                   {"directory", line.directory},
                                   {"bytes", line.bytes},
                                   {"ranks", line.ranks},
                                   {"date_and_time", line.date_and_time},
                                   {"milestone", line.milestone},
                                   {"loss", line.loss},
                                   {"validation_loss", line.validation_loss},
                                   {"state", word(line.state)},
                                   {"damage", damage}});
  }
  return json_text(json);
}

ExitCode checkpoint_verdict(const CheckpointTable& table) {
  const auto any = [&](CheckpointState state) {
    return std::ranges::find(table.lines, state, &CheckpointLine::state) != table.lines.end();
  };
  if (any(CheckpointState::damaged))
    return ExitCode::user_error;
  return any(CheckpointState::unreadable) ? ExitCode::environment : ExitCode::done;
}

}  // namespace trireme::cli
