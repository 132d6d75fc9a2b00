// SPDX-License-Identifier: Apache-2.0
#include "plan/schedule_chart.hpp"

#include <algorithm>

#include <gtest/gtest.h>

#include "optim/schedule.hpp"

namespace trireme::plan {
namespace {

optim::OptimizerConfig wsd_config() {
  optim::OptimizerConfig optimizer;
  optimizer.learning_rate = 1e-3;
  optimizer.schedule.kind = optim::Schedule::wsd;
  optimizer.schedule.warmup_steps = 10;
  optimizer.schedule.final_fraction = 0;
  return optimizer;
}

optim::Groups groups_of(std::initializer_list<double> rates) {
  optim::Groups groups;
  for (const double rate : rates) groups.all.push_back({.match = "*", .learning_rate = rate});
  return groups;
}

ScheduleTable table_of(const optim::OptimizerConfig& optimizer,
                       const optim::Groups& groups,
                       std::int64_t steps,
                       std::int64_t schedule_steps,
                       std::int64_t context,
                       session::BatchConfig batch = {.sequences = 1}) {
  session::Sections config;
  config.optimizer = optimizer;
  config.optimizer.schedule.steps.value = schedule_steps;
  config.run.steps = steps;
  config.batch = std::move(batch);
  return schedule_table(config, groups, context);
}

TEST(ScheduleChart, HasTheStepsWhereTheCurveTurns) {
  const auto table = table_of(wsd_config(), groups_of({1e-3, 2e-3, 1e-3}), 100, 100, 512);
  EXPECT_EQ(table.peaks, (std::vector<double>{1e-3, 2e-3}));
  std::vector<std::int64_t> steps;
  for (const ScheduleLine& line : table.lines) {
    steps.push_back(line.step);
    EXPECT_EQ(line.tokens, 512 * line.step);
    EXPECT_EQ(line.rates[0], optim::learning_rate(wsd_config(), line.step, 100));
    EXPECT_EQ(line.rates[1], 2 * line.rates[0]);
  }
  EXPECT_EQ(steps, (std::vector<std::int64_t>{1, 10, 25, 50, 75, 80, 100}));
}

TEST(ScheduleChart, ShowsTheLargestRateOfEachColumn) {
  for (const std::int64_t steps : {1, 7, 64, 1000, 12345})
    for (const auto kind : {optim::Schedule::constant, optim::Schedule::linear,
                            optim::Schedule::cosine, optim::Schedule::wsd}) {
      auto optimizer = wsd_config();
      optimizer.schedule.kind = kind;
      const auto table = table_of(optimizer, groups_of({1e-3}), steps, 1000, 1);
      ASSERT_EQ(table.curves.at(0).columns.size(),
                static_cast<std::size_t>(std::min<std::int64_t>(steps, 64)));
      std::vector<double> largest(table.curves.at(0).columns.size());
      const auto columns = static_cast<std::int64_t>(largest.size());
      for (std::int64_t column = 0; column < columns; ++column)
        for (std::int64_t step = column * steps / columns + 1;
             step <= (column + 1) * steps / columns; ++step)
          largest[static_cast<std::size_t>(column)] =
              std::max(largest[static_cast<std::size_t>(column)],
                       optim::learning_rate(optimizer, step, 1000));
      EXPECT_EQ(table.curves[0].columns, largest) << word(kind) << ", " << steps;
    }
}

TEST(ScheduleChart, IsDrawn) {
  auto optimizer = wsd_config();
  optimizer.schedule.warmup_steps = 5;
  const std::string text = schedule_text(table_of(optimizer, groups_of({1e-3}), 20, 20, 64));
  EXPECT_EQ(text,
            "learning rate over the steps of the run\n"
            "    0.001 |    ************\n"
            "   0.0009 |\n"
            "   0.0008 |   *            *\n"
            "   0.0007 |\n"
            "   0.0006 |  *\n"
            "   0.0005 |                 *\n"
            "   0.0004 | *\n"
            "   0.0003 |                  *\n"
            "   0.0002 |*\n"
            "   0.0001 |\n"
            "        0 |                   *\n"
            "          +--------------------\n"
            "           1                 20\n"
            "\n"
            "      step             tokens       peak 0.001\n"
            "         1                 64           0.0002\n"
            "         5                320            0.001\n"
            "        10                640            0.001\n"
            "        15                960            0.001\n"
            "        16               1024            0.001\n"
            "        20               1280                0\n");
}

optim::OptimizerConfig muon_config() {
  auto optimizer = wsd_config();
  optimizer.kind = optim::Kind::muon;
  optimizer.schedule.warmup_steps = 0;
  optimizer.schedule.decay_fraction = 0.5;
  optimizer.weight_decay_schedule = optim::DecaySchedule::linear;
  optimizer.muon.momentum_warmup_steps = 5;
  return optimizer;
}

TEST(ScheduleChart, DrawsAllThatChanges) {
  const std::string text = schedule_text(table_of(muon_config(), groups_of({1e-3}), 9, 9, 10,
                                                  {.sequences = 4, .schedule = {{6, 12}}}));
  EXPECT_EQ(
      text.substr(text.find("weight decay")),
      "weight decay over the steps of the run\n"
      "      0.1 |*\n"
      "     0.09 | *\n"
      "     0.08 |  *\n"
      "     0.07 |\n"
      "     0.06 |   *\n"
      "     0.05 |    *\n"
      "     0.04 |     *\n"
      "     0.03 |      *\n"
      "     0.02 |\n"
      "     0.01 |       *\n"
      "        0 |        *\n"
      "          +---------\n"
      "           1       9\n"
      "\n"
      "momentum over the steps of the run\n"
      "     0.95 |     ****\n"
      "     0.94 |\n"
      "     0.93 |    *\n"
      "     0.92 |\n"
      "     0.91 |   *\n"
      "      0.9 |\n"
      "     0.89 |  *\n"
      "     0.88 |\n"
      "     0.87 | *\n"
      "     0.86 |\n"
      "     0.85 |*\n"
      "          +---------\n"
      "           1       9\n"
      "\n"
      "sequences of a step over the steps of the run\n"
      "       12 |     ****\n"
      "     10.8 |\n"
      "      9.6 |\n"
      "      8.4 |\n"
      "      7.2 |\n"
      "        6 |\n"
      "      4.8 |\n"
      "      3.6 |*****\n"
      "      2.4 |\n"
      "      1.2 |\n"
      "        0 |\n"
      "          +---------\n"
      "           1       9\n"
      "\n"
      "      step             tokens       peak 0.001 weight decay     momentum    sequences\n"
      "         1                 40            0.001          0.1         0.85            4\n"
      "         2                 80            0.001       0.0875         0.87            4\n"
      "         4                160            0.001       0.0625         0.91            4\n"
      "         5                200            0.001         0.05         0.93            4\n"
      "         6                320          0.00075       0.0375         0.95           12\n"
      "         7                440           0.0005        0.025         0.95           12\n"
      "         9                680                0            0         0.95           12\n");
}

TEST(ScheduleChart, ShowsTheLargestValueOfEachColumnOfAllCurves) {
  const session::BatchConfig batch{.sequences = 12, .schedule = {{3, 4}, {700, 24}, {701, 8}}};
  const batches::BatchSizes sizes = batch.sizes();
  for (const std::int64_t steps : {1, 7, 64, 1000})
    for (const auto decay :
         {optim::DecaySchedule::linear, optim::DecaySchedule::cosine, optim::DecaySchedule::rate}) {
      auto optimizer = muon_config();
      optimizer.schedule.warmup_steps = 20;
      optimizer.weight_decay_schedule = decay;
      optimizer.muon.momentum_warmup_steps = 300;
      const auto table = table_of(optimizer, groups_of({1e-3}), steps, 900, 1, batch);
      ASSERT_EQ(table.curves.size(), 4U);
      const auto columns = static_cast<std::int64_t>(table.curves[0].columns.size());
      for (std::int64_t column = 0; column < columns; ++column) {
        double most_decay = 0, most_momentum = 0, most_sequences = 0;
        for (std::int64_t step = column * steps / columns + 1;
             step <= (column + 1) * steps / columns; ++step) {
          most_decay = std::max(most_decay, optim::weight_decay(optimizer, step, 900));
          most_momentum = std::max(most_momentum, optim::momentum(optimizer.muon, step));
          most_sequences = std::max(most_sequences, static_cast<double>(sizes.at(step)));
        }
        const auto at = static_cast<std::size_t>(column);
        EXPECT_EQ(table.curves[1].columns[at], most_decay);
        EXPECT_EQ(table.curves[2].columns[at], most_momentum);
        EXPECT_EQ(table.curves[3].columns[at], most_sequences);
      }
    }
}

TEST(ScheduleChart, IsJsonForPrograms) {
  EXPECT_EQ(schedule_json(table_of(wsd_config(), groups_of({1e-3}), 1, 100, 8)).dump(),
            "{\"steps\":1,\"learning_rate\":[0.001],\"lines\":[{\"step\":1,\"tokens\":8,"
            "\"rates\":[0.0001],\"sequences\":1,\"weight_decay\":0.1,\"momentum\":0.0}]}");
}

}  // namespace
}  // namespace trireme::plan
