// SPDX-License-Identifier: Apache-2.0
// Where the ranks run and which cores they may use: gathered once, printed at start, and the
// ground on which `transport: auto` chooses.
//
// A CPU here is what the kernel schedules on (a hardware thread). A rank is bound when it may use
// fewer CPUs than its host has. Open MPI binds each rank to one core when there are one or two,
// and all its threads then share that core; hence the warnings.
#pragma once

#include <string>
#include <vector>

#include "comm/control/world.hpp"

namespace trireme::comm {

struct RankPlace {
  std::string host;
  std::vector<int> cpus;  ///< that the rank may use, ascending
  int host_cpus = 0;      ///< CPUs that are online on the host
  int threads = 1;        ///< that the rank computes with

  [[nodiscard]] bool bound() const { return static_cast<int>(cpus.size()) < host_cpus; }
};

struct Placement {
  std::vector<RankPlace> ranks;  ///< by rank

  /// Hosts in order of their first rank.
  [[nodiscard]] std::vector<std::string> hosts() const;
  /// The ranks of one host, ascending.
  [[nodiscard]] std::vector<int> ranks_on(const std::string& host) const;
};

/// This process's place, `threads` of it. Throws DeviceError when the kernel does not report it.
RankPlace place_here(const std::string& host, int threads);

/// Collective.
Placement gather_placement(World& world, int threads);

struct PlacementLine {
  std::string text;
  bool warning = false;
};

/// One line for the whole, one per host, then the warnings: a rank with fewer CPUs than threads,
/// more ranks or threads than CPUs on a host, ranks bound so that CPUs of the host idle.
std::vector<PlacementLine> describe(const Placement& placement);

/// "0-3,8".
std::string ranges_text(const std::vector<int>& ascending);

}  // namespace trireme::comm
