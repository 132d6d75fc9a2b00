// SPDX-License-Identifier: Apache-2.0
#include "tune/budget.hpp"

#include <algorithm>

namespace trireme::tune {
namespace {

constexpr int rounds_of_runs = 4;
constexpr std::size_t least_settings = 3;
constexpr int rounds_again = 8, least_rounds_again = 4;
constexpr std::size_t pairs_again = 2;
constexpr int most_steps = 15;

bool are_shortened(const TimedSteps& timed) {
  return timed.most_micro_steps == shortest_steps.most_micro_steps;
}

}  // namespace

TimedSteps steps_within(double seconds, const OwnStep& own, std::size_t sessions) {
  TimedSteps timed;
  const double fit = seconds / (static_cast<double>(sessions) * own.seconds) - timed.warmups;
  timed.steps = static_cast<int>(std::clamp(fit, 0.0, 1.0 * most_steps));
  return timed.steps > 0 ? timed : shortest_steps;
}

std::size_t sessions_within(double seconds, const OwnStep& own) {
  const double part = std::min(1.0, static_cast<double>(shortest_steps.most_micro_steps) /
                                        static_cast<double>(own.micro_steps));
  const double fit =
      seconds / ((shortest_steps.warmups + shortest_steps.steps) * part * own.seconds);
  return static_cast<std::size_t>(std::min(fit, 1e6));
}

TuneBudget budget_for_runs(double seconds, const OwnStep& own, std::size_t settings) {
  TuneBudget budget{steps_within(seconds, own, rounds_of_runs * settings), rounds_of_runs,
                    settings};
  if (are_shortened(budget.timed)) {
    const std::size_t fit = sessions_within(seconds, own) / rounds_of_runs;
    budget.blocks = std::min(settings, std::max(fit, least_settings));
  }
  return budget;
}

TuneBudget budget_for_repetition(double seconds, const OwnStep& own) {
  constexpr std::size_t sessions = 2 * pairs_again * rounds_again;
  TuneBudget budget{steps_within(seconds, own, sessions), rounds_again, pairs_again};
  const std::size_t fit = sessions_within(seconds, own);
  if (!are_shortened(budget.timed) || fit >= sessions)
    return budget;
  budget.blocks = 1;
  budget.rounds = std::clamp(static_cast<int>(fit / 2), least_rounds_again, rounds_again);
  return budget;
}

}  // namespace trireme::tune
