// SPDX-License-Identifier: Apache-2.0
#include "plan/schedule_chart.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "optim/schedule.hpp"

namespace trireme::plan {
namespace {

constexpr std::int64_t max_columns = 64;
constexpr int chart_rows = 10;

std::string short_text(double value) {
  return fmt::format("{:.3g}", value);
}

std::vector<double> peaks_of(const optim::OptimizerConfig& optimizer, const optim::Groups& groups) {
  std::vector<double> peaks{optimizer.learning_rate};
  for (const optim::Group& group : groups.all)
    if (std::ranges::find(peaks, group.learning_rate) == peaks.end())
      peaks.push_back(group.learning_rate);
  return peaks;
}

std::set<std::int64_t> turns_of(const optim::OptimizerConfig& optimizer,
                                const batches::BatchSizes& sizes,
                                std::int64_t steps,
                                std::int64_t end) {
  std::set<std::int64_t> found{1, steps};
  std::vector<std::int64_t> turns{optimizer.schedule.warmup_steps,
                                  optim::last_peak_step(optimizer.schedule, end), end};
  if (optimizer.kind == optim::Kind::muon && optimizer.muon.momentum_warmup_steps > 0)
    turns.push_back(optimizer.muon.momentum_warmup_steps + 1);
  for (const batches::BatchSizes::Part& part : sizes.parts()) turns.push_back(part.step);
  for (const std::int64_t step : turns)
    if (step >= 1 && step <= steps)
      found.insert(step);
  return found;
}

/// Between two turns a curve rises or falls all the way, so that a column's largest value is at one
/// of its ends or at a turn.
std::vector<double> columns_of(std::int64_t steps,
                               const std::set<std::int64_t>& turns,
                               const std::function<double(std::int64_t)>& value) {
  std::vector<double> columns;
  const std::int64_t count = std::min(steps, max_columns);
  for (std::int64_t column = 0; column < count; ++column) {
    const std::int64_t first = column * steps / count + 1, last = (column + 1) * steps / count;
    double largest = std::max(value(first), value(last));
    for (auto turn = turns.lower_bound(first); turn != turns.end() && *turn <= last; ++turn)
      largest = std::max(largest, value(*turn));
    columns.push_back(largest);
  }
  return columns;
}

std::string drawn(const ScheduleCurve& curve, std::int64_t steps) {
  const double height = std::ranges::max(curve.columns) - curve.bottom;
  std::string text = curve.title + " over the steps of the run\n";
  for (int row = chart_rows; row >= 0; --row) {
    std::string line = fmt::format("{:>9} |", short_text(curve.bottom + height * row / chart_rows));
    for (const double value : curve.columns)
      line += height > 0 && std::lround((value - curve.bottom) / height * chart_rows) == row ? '*'
                                                                                             : ' ';
    line.resize(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  }
  text += fmt::format("{:>9} +{:-<{}}\n", "", "", curve.columns.size());
  const std::string last = std::to_string(steps);
  return text + fmt::format("{:>11}{:<{}}{}\n\n", "", "1",
                            std::max(curve.columns.size(), last.size() + 2) - last.size(), last);
}

}  // namespace

ScheduleTable schedule_table(const session::Sections& config,
                             const optim::Groups& groups,
                             std::int64_t context) {
  const optim::OptimizerConfig& optimizer = config.optimizer;
  const std::int64_t steps = config.run.steps, end = optimizer.schedule.steps.value_or(steps);
  const batches::BatchSizes sizes = config.batch.sizes();
  const auto rate = [&](std::int64_t step) { return optim::learning_rate(optimizer, step, end); };
  const auto decay = [&](std::int64_t step) { return optim::weight_decay(optimizer, step, end); };
  const auto momentum = [&](std::int64_t step) { return optim::momentum(optimizer.muon, step); };
  const auto batch = [&](std::int64_t step) { return static_cast<double>(sizes.at(step)); };
  const bool muon = optimizer.kind == optim::Kind::muon;
  ScheduleTable table;
  table.steps = steps;
  table.peaks = peaks_of(optimizer, groups);
  table.decay_changes = optimizer.weight_decay_schedule != optim::DecaySchedule::constant &&
                        optimizer.weight_decay > 0;
  table.momentum_changes = muon && optimizer.muon.momentum_warmup_steps > 0;
  table.batch_changes = sizes.changes();

  const std::set<std::int64_t> turns = turns_of(optimizer, sizes, steps, end);
  const auto add_curve = [&](const char* title, double bottom, const auto& value) {
    table.curves.push_back({title, bottom, columns_of(steps, turns, value)});
  };
  add_curve("learning rate", 0, rate);
  if (table.decay_changes)
    add_curve("weight decay", 0, decay);
  if (table.momentum_changes)
    add_curve("momentum", std::min(optimizer.muon.momentum_start, optimizer.muon.momentum),
              momentum);
  if (table.batch_changes)
    add_curve("sequences of a step", 0, batch);

  std::set<std::int64_t> shown = turns;
  for (const std::int64_t step : {steps / 4, steps / 2, steps - steps / 4})
    if (step >= 1)
      shown.insert(step);
  for (const std::int64_t step : shown) {
    ScheduleLine line{.step = step,
                      .tokens = sizes.until(step) * context,
                      .rates = {},
                      .sequences = sizes.at(step),
                      .weight_decay = decay(step),
                      .momentum = muon ? momentum(step) : 0};
    for (const double peak : table.peaks) {
      optim::OptimizerConfig own = optimizer;
      own.learning_rate = peak;
      line.rates.push_back(optim::learning_rate(own, step, end));
    }
    table.lines.push_back(std::move(line));
  }
  return table;
}

std::string schedule_text(const ScheduleTable& table) {
  std::string text;
  for (const ScheduleCurve& curve : table.curves) text += drawn(curve, table.steps);
  text += fmt::format("{:>10} {:>18}", "step", "tokens");
  for (const double peak : table.peaks) text += fmt::format(" {:>16}", "peak " + short_text(peak));
  const auto heading = [&](bool shows, const char* title) {
    if (shows)
      text += fmt::format(" {:>12}", title);
  };
  heading(table.decay_changes, "weight decay");
  heading(table.momentum_changes, "momentum");
  heading(table.batch_changes, "sequences");
  text += '\n';
  for (const ScheduleLine& line : table.lines) {
    text += fmt::format("{:>10} {:>18}", line.step, line.tokens);
    for (const double rate : line.rates) text += fmt::format(" {:>16}", short_text(rate));
    if (table.decay_changes)
      text += fmt::format(" {:>12}", short_text(line.weight_decay));
    if (table.momentum_changes)
      text += fmt::format(" {:>12}", short_text(line.momentum));
    if (table.batch_changes)
      text += fmt::format(" {:>12}", line.sequences);
    text += '\n';
  }
  return text;
}

Json schedule_json(const ScheduleTable& table) {
  Json lines = Json::array();
  for (const ScheduleLine& line : table.lines)
    lines.push_back({{"step", line.step},
                     {"tokens", line.tokens},
                     {"rates", line.rates},
                     {"sequences", line.sequences},
                     {"weight_decay", line.weight_decay},
                     {"momentum", line.momentum}});
  return {{"steps", table.steps}, {"learning_rate", table.peaks}, {"lines", lines}};
}

}  // namespace trireme::plan
