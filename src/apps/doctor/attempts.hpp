// SPDX-License-Identifier: Apache-2.0
// Runs the parts of an examination, each of which may fail: the examination continues without the
// part that failed, and its report says what failed and why.
//
//     Attempts attempts(world, report.problems);
//     attempts.measure("memory", [&](comm::World& all) { report.memory = …; });
//
// 1. Parts run in a separate world with the same ranks, which has its own watchdog. If a part fails
//    on one rank only, that rank waits for the others in `world`, apart from their collectives. If
//    the others wait for it, the part's deadline ends the part on them as well. Then all ranks
//    exchange the reasons and continue.
// 2. After a failure the next part uses a new world, since the old one may have active messages.
//    For the same reason a process in which the environment failed ends by World::abort(), after
//    its report was printed.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/error.hpp"

#include "comm/control/world.hpp"

namespace trireme::doctor {

/// A part that was not measured, or not on every rank.
struct Problem {
  std::string part;    ///< "collectives"
  int rank = 0;        ///< the first rank with this reason
  std::string reason;  ///< as an error that ends a run
  ExitCode code = ExitCode::environment;

  bool operator==(const Problem&) const = default;
};

/// `done` without problems; else the code of the worst: a bug, then the environment, then the user.
ExitCode exit_code_of(const std::vector<Problem>& problems);

class Attempts {
 public:
  /// Deadline of a part; no part takes this long without progress.
  static constexpr double usual_deadline_s = 120;

  /// Borrows both. `world` has all ranks. Adds problems to `problems`, the same on every rank.
  Attempts(comm::World& world, std::vector<Problem>& problems, double deadline_s = usual_deadline_s)
      : world_(world), problems_(problems), deadline_s_(deadline_s) {}

  /// Collective. An exception of `action` becomes a problem; each reason once.
  void measure(const std::string& part, const std::function<void(comm::World&)>& action);

 private:
  comm::World& world_of_a_part();

  comm::World& world_;
  std::vector<Problem>& problems_;
  const double deadline_s_;                                ///< of parts; that of `world` is longer
  std::vector<std::unique_ptr<comm::World>> part_worlds_;  ///< the last one is in use
  bool failed_ = false;                                    ///< the previous part
};

}  // namespace trireme::doctor
