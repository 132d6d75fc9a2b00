// SPDX-License-Identifier: Apache-2.0
#include "report/schedule_chart.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>

#include "base/error.hpp"

#include "optim/schedule.hpp"

#include "text/terminal.hpp"

namespace trireme::report {
namespace {

constexpr std::int64_t max_columns = 64;
constexpr int chart_rows = 10;

std::string rate_text(double rate) {
  return fmt::format("{:.3g}", rate);
}

std::vector<double> peaks_of(const optim::OptimizerConfig& optimizer, const optim::Groups& groups) {
  std::vector<double> peaks{optimizer.learning_rate};
  for (const optim::Group& group : groups.all)
    if (std::ranges::find(peaks, group.learning_rate) == peaks.end())
      peaks.push_back(group.learning_rate);
  return peaks;
}

std::set<std::int64_t> interesting_steps(const optim::ScheduleConfig& schedule,
                                         std::int64_t steps,
                                         std::int64_t schedule_steps) {
  std::set<std::int64_t> found{1, steps};
  for (const std::int64_t step :
       {schedule.warmup_steps, optim::last_peak_step(schedule, schedule_steps), schedule_steps,
        steps / 4, steps / 2, steps - steps / 4})
    if (step >= 1 && step <= steps)
      found.insert(step);
  return found;
}

}  // namespace

ScheduleTable schedule_table(const optim::OptimizerConfig& optimizer,
                             const optim::Groups& groups,
                             std::int64_t steps,
                             std::int64_t schedule_steps,
                             std::int64_t tokens_per_step) {
  TRIREME_EXPECT(steps >= 1 && schedule_steps >= 1 && tokens_per_step >= 1,
                 "{} steps, a schedule of {}, {} tokens", steps, schedule_steps, tokens_per_step);
  ScheduleTable table{steps, peaks_of(optimizer, groups), {}, {}};
  const std::int64_t columns = std::min(steps, max_columns);
  for (std::int64_t column = 0; column < columns; ++column) {
    // The curve rises to its peak once and falls once, so that a column's largest rate is at one of
    // its ends or at the last step of the peak.
    const std::int64_t first = column * steps / columns + 1;
    const std::int64_t last = (column + 1) * steps / columns;
    const std::int64_t top =
        std::clamp(optim::last_peak_step(optimizer.schedule, schedule_steps), first, last);
    table.curve.push_back(std::max({optim::learning_rate(optimizer, first, schedule_steps),
                                    optim::learning_rate(optimizer, top, schedule_steps),
                                    optim::learning_rate(optimizer, last, schedule_steps)}));
  }
  for (const std::int64_t step : interesting_steps(optimizer.schedule, steps, schedule_steps)) {
    ScheduleLine line{step, step * tokens_per_step, {}};
    for (const double peak : table.peaks) {
      optim::OptimizerConfig own = optimizer;
      own.learning_rate = peak;
      line.rates.push_back(optim::learning_rate(own, step, schedule_steps));
    }
    table.lines.push_back(std::move(line));
  }
  return table;
}

std::string schedule_text(const ScheduleTable& table) {
  const double top = std::ranges::max(table.curve);
  std::string text = "learning rate over the steps of the run\n";
  for (int row = chart_rows; row >= 0; --row) {
    const double level = top * row / chart_rows;
    std::string line = fmt::format("{:>9} |", rate_text(level));
    for (const double rate : table.curve)
      line += top > 0 && std::lround(rate / top * chart_rows) == row ? '*' : ' ';
    line.resize(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  }
  text += fmt::format("{:>9} +{:-<{}}\n", "", "", table.curve.size());
  const std::string last = std::to_string(table.steps);
  text += fmt::format("{:>11}{:<{}}{}\n\n", "", "1",
                      std::max(table.curve.size(), last.size() + 2) - last.size(), last);

  text += fmt::format("{:>10} {:>18}", "step", "tokens");
  for (const double peak : table.peaks) text += fmt::format(" {:>16}", "peak " + rate_text(peak));
  text += '\n';
  for (const ScheduleLine& line : table.lines) {
    text += fmt::format("{:>10} {:>18}", line.step, line.tokens);
    for (const double rate : line.rates) text += fmt::format(" {:>16}", rate_text(rate));
    text += '\n';
  }
  return text;
}

std::string schedule_json(const ScheduleTable& table) {
  const auto list = [](const std::vector<double>& numbers) {
    std::string items;
    for (const double number : numbers)
      items += (items.empty() ? "" : ", ") + text::json_number(number);
    return "[" + items + "]";
  };
  std::string lines;
  for (const ScheduleLine& line : table.lines)
    lines += fmt::format("{}\n    {{\"step\": {}, \"tokens\": {}, \"rates\": {}}}",
                         lines.empty() ? "" : ",", line.step, line.tokens, list(line.rates));
  return fmt::format("{{\"steps\": {}, \"learning_rate\": {}, \"lines\": [{}]}}", table.steps,
                     list(table.peaks), lines);
}

}  // namespace trireme::report
