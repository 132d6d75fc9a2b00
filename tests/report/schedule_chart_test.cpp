// SPDX-License-Identifier: Apache-2.0
#include "report/schedule_chart.hpp"

#include <gtest/gtest.h>

#include "optim/schedule.hpp"

namespace trireme::report {
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

TEST(ScheduleChart, HasTheStepsWhereTheCurveTurns) {
  const auto table = schedule_table(wsd_config(), groups_of({1e-3, 2e-3, 1e-3}), 100, 100, 512);
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
      const auto table = schedule_table(optimizer, groups_of({1e-3}), steps, 1000, 1);
      ASSERT_EQ(table.curve.size(), static_cast<std::size_t>(std::min<std::int64_t>(steps, 64)));
      std::vector<double> largest(table.curve.size());
      const auto columns = static_cast<std::int64_t>(largest.size());
      for (std::int64_t column = 0; column < columns; ++column)
        for (std::int64_t step = column * steps / columns + 1;
             step <= (column + 1) * steps / columns; ++step)
          largest[static_cast<std::size_t>(column)] =
              std::max(largest[static_cast<std::size_t>(column)],
                       optim::learning_rate(optimizer, step, 1000));
      EXPECT_EQ(table.curve, largest) << word(kind) << ", " << steps;
    }
}

TEST(ScheduleChart, IsDrawn) {
  auto optimizer = wsd_config();
  optimizer.schedule.warmup_steps = 5;
  const std::string text = schedule_text(schedule_table(optimizer, groups_of({1e-3}), 20, 20, 64));
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

TEST(ScheduleChart, IsJsonForPrograms) {
  EXPECT_EQ(schedule_json(schedule_table(wsd_config(), groups_of({1e-3}), 1, 100, 8)),
            "{\"steps\": 1, \"learning_rate\": [0.001], \"lines\": [\n    {\"step\": 1, "
            "\"tokens\": 8, \"rates\": [0.0001]}]}");
}

}  // namespace
}  // namespace trireme::report
