// SPDX-License-Identifier: Apache-2.0
// `trireme plan --schedule`: what changes over a run by plan (learning rate, weight decay, Muon's
// momentum, the batch), as charts and a table for people and as points for programs, from the very
// functions that a run calls at each step.
//
// A chart's columns are equal parts of the run; each shows the largest value of its steps. Values
// that do not change have no chart, except the learning rate. The table has the steps where a curve
// turns and the quarters between, with the rate of every group of parameters with its own peak.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.hpp"

#include "optim/groups.hpp"
#include "session/job.hpp"

namespace trireme::plan {

struct ScheduleLine {
  std::int64_t step = 0;
  std::int64_t tokens = 0;     ///< of all steps until this one, it included
  std::vector<double> rates;   ///< as ScheduleTable::peaks
  std::int64_t sequences = 0;  ///< of the step
  double weight_decay = 0;     ///< optimizer.weight_decay, which groups follow
  double momentum = 0;         ///< Muon's; 0 for others
};

struct ScheduleCurve {
  std::string title;
  double bottom = 0;            ///< the value at the lowest row
  std::vector<double> columns;  ///< the largest value in each
};

struct ScheduleTable {
  std::int64_t steps = 0;             ///< of the run, which may be more or less than the schedule's
  std::vector<double> peaks;          ///< optimizer.learning_rate, then those of groups that differ
  std::vector<ScheduleCurve> curves;  ///< the learning rate's, then those of what changes
  std::vector<ScheduleLine> lines;
  bool decay_changes = false, momentum_changes = false, batch_changes = false;
};

/// Of a run with this deck. `context`: tokens of a sequence.
ScheduleTable schedule_table(const session::Sections& config,
                             const optim::Groups& groups,
                             std::int64_t context);

std::string schedule_text(const ScheduleTable& table);
/// An object with learning_rate (the peaks) and lines of step, tokens, rates, sequences,
/// weight_decay and momentum.
Json schedule_json(const ScheduleTable& table);

}  // namespace trireme::plan
