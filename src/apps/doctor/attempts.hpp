// SPDX-License-Identifier: Apache-2.0
// Measurements that may fail one by one: an examination goes on without the part that failed, and
// its report states what failed and why.
//
//     Attempts attempts(world, report.problems);
//     attempts.measure("memory", [&](comm::World& all) { report.memory = …; });
//
// 1. Parts run in a world of their own with the same ranks, which has its own watchdog. A rank on
//    which a part fails alone waits for the others in `world`, where it does not mix with their
//    collectives. Where these wait for it, the part's deadline ends the part on them too. Then all
//    learn the reasons and go on.
// 2. After a failure the next part gets another such world: in the old one messages may be on their
//    way. For the same reason a process in which something of the environment failed ends by
//    World::abort(), after its report is out.
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
  int rank = 0;        ///< the first one that gives this reason
  std::string reason;  ///< as an error that ends a run
  ExitCode code = ExitCode::environment;

  bool operator==(const Problem&) const = default;
};

/// done without problems; else that of the worst: a bug, then the environment, then a mistake.
ExitCode exit_code_of(const std::vector<Problem>& problems);

class Attempts {
 public:
  /// No part takes so long without progress.
  static constexpr double usual_deadline_s = 120;

  /// Borrows both. `world` has all ranks. Adds to `problems`, the same on every rank.
  Attempts(comm::World& world,
           std::vector<Problem>& problems,
           double deadline_s = usual_deadline_s);
  ~Attempts();
  Attempts(const Attempts&) = delete;
  Attempts& operator=(const Attempts&) = delete;

  /// Collective. Whatever `action` throws becomes a problem; each reason once.
  void measure(const std::string& part, const std::function<void(comm::World&)>& action);

 private:
  comm::World& world_of_a_part();

  comm::World& world_;
  std::vector<Problem>& problems_;
  const double deadline_s_;                          ///< of parts; that of `world` is longer
  std::vector<std::unique_ptr<comm::World>> apart_;  ///< the last one is in use
  bool failed_ = false;                              ///< the part before
};

}  // namespace trireme::doctor
