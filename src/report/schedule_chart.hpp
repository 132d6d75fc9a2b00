// SPDX-License-Identifier: Apache-2.0
// `trireme plan --schedule`: the learning rate over a run, as a chart and a table for people and as
// points for programs, from the very function that a run calls at each step.
//
// The chart's columns are equal parts of the run; each shows the largest rate of its steps. The
// table has the steps where the curve turns and the quarters between, with the rate of every group
// of parameters that has a peak of its own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "optim/config.hpp"
#include "optim/groups.hpp"

namespace trireme::report {

struct ScheduleLine {
  std::int64_t step = 0;
  std::int64_t tokens = 0;    ///< of all steps until this one, it included
  std::vector<double> rates;  ///< as ScheduleTable::peaks
};

struct ScheduleTable {
  std::int64_t steps = 0;     ///< of the run, which may be more or less than the schedule's
  std::vector<double> peaks;  ///< optimizer.learning_rate, then those of groups that differ
  std::vector<double> curve;  ///< the largest rate in each column of the chart
  std::vector<ScheduleLine> lines;
};

/// Of a run of `steps` steps with `tokens_per_step` tokens, whose schedule ends at
/// `schedule_steps`. Requires: all at least 1.
ScheduleTable schedule_table(const optim::OptimizerConfig& optimizer,
                             const optim::Groups& groups,
                             std::int64_t steps,
                             std::int64_t schedule_steps,
                             std::int64_t tokens_per_step);

std::string schedule_text(const ScheduleTable& table);
/// An object with learning_rate (the peaks) and lines of step, tokens and rates.
std::string schedule_json(const ScheduleTable& table);

}  // namespace trireme::report
