// SPDX-License-Identifier: Apache-2.0
// The hosts on which the ranks run and the CPUs that they may use: gathered once and printed at
// start. `transport: auto` chooses by it.
//
// A CPU is a hardware thread. A rank is bound when it may use fewer CPUs than its host has. Open
// MPI binds each of one or two ranks to one core, which its threads then share; hence the warnings.
#pragma once

#include <string>
#include <tuple>
#include <vector>

#include "comm/control/world.hpp"

namespace trireme::comm {

struct RankPlace {
  std::string host;
  std::vector<int> cpus;  ///< CPUs that the rank may use, ascending
  int host_cpus = 0;      ///< CPUs that are online on the host
  int threads = 1;        ///< compute threads of the rank

  [[nodiscard]] bool bound() const { return static_cast<int>(cpus.size()) < host_cpus; }
  auto fields() { return std::tie(host, cpus, host_cpus, threads); }
};

struct Placement {
  std::vector<RankPlace> ranks;  ///< by rank

  /// Hosts in order of their first rank.
  [[nodiscard]] std::vector<std::string> hosts() const;
  /// The ranks of one host, ascending.
  [[nodiscard]] std::vector<int> ranks_on(const std::string& host) const;
};

/// The placement of this process, with `threads` threads. Throws DeviceError when the kernel does
/// not report it.
RankPlace place_here(const std::string& host, int threads);

/// Collective.
Placement gather_placement(World& world, int threads);

struct PlacementLine {
  std::string text;
  bool warning = false;
  std::string remedy{};  ///< for a warning: "lower run.threads"
};

/// One line about the run, one per host, then the warnings: a rank with fewer CPUs than threads,
/// more ranks or threads than CPUs on a host, bound ranks that leave CPUs of the host idle.
std::vector<PlacementLine> describe(const Placement& placement);

/// "0-3,8".
std::string ranges_text(const std::vector<int>& ascending);

}  // namespace trireme::comm
