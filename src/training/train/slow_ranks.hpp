// SPDX-License-Identifier: Apache-2.0
// Finds ranks that compute more slowly than the others, while the run goes on, and says why.
//
// Every rank reports how long its forward and backward passes took, without waits for the network,
// scaled to the number of micro-steps of the rank with most. The times are sent in the exchange in
// which ranks agree on requests after each step, so all know them and decide alike without another
// message. Only a rank that is found slow broadcasts what slows it down (base/host_load.hpp).
//
// The rule: steps are added up to samples that are long enough not to be noise (sample_s). The
// value of a sample is the logarithm of a rank's time over the median of the other ranks. A rank is
// slow in a window of samples if the median of its values is above log(least_factor), far above the
// variation of samples (MAD of this or of the usual rank, the larger), and far above the
// differences between ranks. It is reported after two such windows in a row, and again when it has
// been below half of the threshold for two windows in a row.
//
// 1. All ranks call all members, in every step.
// 2. A rank without micro-steps of its own, or with a smaller share of a batch that its number of
//    micro-steps does not show, is never slow.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/host_load.hpp"
#include "device/energy.hpp"

#include "comm/control/world.hpp"

#include "batches/batches.hpp"

namespace trireme::train {

class SlowRankRule {
 public:
  static constexpr double sample_s = 0.25, least_factor = 1.2;
  static constexpr std::size_t window = 10;  ///< samples

  struct Changes {
    bool window_ended = false;
    std::vector<int> slow = {};       ///< since now, the slowest first
    std::vector<int> recovered = {};  ///< since now
  };

  explicit SlowRankRule(int ranks) : ranks_(static_cast<std::size_t>(ranks)) {}
  /// One step's seconds by rank.
  Changes add(std::span<const double> seconds);
  /// The time of the rank over the median of the others, in the last window.
  [[nodiscard]] double factor(int rank) const;
  /// Whether the last window was the first one in which the rank was slow.
  [[nodiscard]] bool suspects(int rank) const;

 private:
  struct Rank {
    double seconds = 0;          // of the sample so far
    std::vector<double> ratios;  // logarithms, of the window so far
    double ratio = 0;            // median of the last window
    int windows = 0;             // in a row that speak for a change of `slow`
    bool slow = false;
  };
  void end_sample();
  Changes end_window();

  std::vector<Rank> ranks_;
};

class SlowRanks {
 public:
  /// `meter` must outlive the object.
  SlowRanks(comm::World& world, const device::EnergyMeter& meter, bool on_cpu);

  /// What this rank adds to the exchange at the end of a step, by rank: its time of the last step
  /// measured, in ns, and 0 for the others.
  std::span<std::int64_t> words();
  /// Forward and backward of a step took this rank `seconds`.
  void measured(double seconds, const batches::Batches& batch);
  /// After the exchange in step `step`: lines for the log. Collective.
  std::vector<std::string> look(std::int64_t step);

 private:
  [[nodiscard]] std::string reasons() const;

  comm::World& world_;
  const device::EnergyMeter& meter_;
  const bool on_cpu_;
  std::vector<std::int64_t> words_;
  std::vector<double> times_;  // by rank, in s; 0: not known
  SlowRankRule rule_;
  std::vector<std::int64_t> since_;  // by rank: the step at which it was found slow
  double seconds_ = 0, busy_s_ = 0;  // the latter since before_
  HostLoad before_;                  // of this rank, when the rule began to suspect it
};

}  // namespace trireme::train
