// SPDX-License-Identifier: Apache-2.0
// Computes what communication costs a deck on a number of ranks, from the links of a machine file.
//
// 1. A link of the same transport, order of additions, ranks and hosts is used as it is.
// 2. Otherwise the link with the nearest number of participants is used: ranks (shared_memory, mpi)
//    or hosts (hierarchical), measured on one host if the plan is for one host, else on several.
//    Its collectives are extrapolated (seconds_on()); the small exchanges grow with the logarithm of
//    ranks.
// 3. A hierarchical transport that was not measured is a link in shared memory for the ranks of a
//    host, followed by a link of messages between hosts.
// 4. Groups of ranks that communicate at the same time (parallel.replicate) share what leaves a
//    host, and on a host its CPUs. For another number of groups than was measured, the bytes or the
//    time of each change in proportion.
// 5. A copy in memory takes time in proportion to the ranks of a host, which share its memory and
//    its network.
// 6. What is not measured has no cost: find() names what is missing.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "plan/machine.hpp"

namespace trireme::plan {

/// The straight line through the measured times of a collective: seconds = latency + bytes x
/// seconds_per_byte. It minimizes the squares of the relative errors, so a small bucket counts as
/// much as a large one. Times for other numbers of ranks: docs/design/apps.md, "Time of a step".
struct Line {
  double latency_s = 0;
  double seconds_per_byte = 0;
  double residual = 0;  ///< root mean square of relative errors
};

/// Neither is negative: where the best line has a negative part, the best one without that part is
/// taken. Requires: at least one point, times above 0.
Line fit_line(std::span<const Point> points);

/// Seconds on the ranks of the measurement: linear between two measured sizes, below the smallest
/// one starting at the fit's latency, and above the largest one with the fit's seconds per byte.
double measured_seconds(const Collective& collective, double bytes);

/// Seconds on `planned` ranks, from a measurement on `measured`. Requires: measured >= 2.
double seconds_on(const Collective& collective,
                  double bytes,
                  std::int64_t measured,
                  std::int64_t planned);

class LinkCost {
 public:
  /// `machine` must outlive the object. With one rank all costs are 0.
  static LinkCost find(const Machine& machine, const Wire& wire);

  /// What was not measured; empty if nothing is missing.
  [[nodiscard]] const std::string& missing() const { return missing_; }
  /// Whether ranks, hosts or groups differ from those that were measured.
  [[nodiscard]] bool extrapolated() const { return extrapolated_; }

  /// Seconds for one bucket, padding included. If bf16 was not measured, uses fp32 of as many
  /// bytes. Requires: nothing is missing.
  [[nodiscard]] double seconds(Operation operation, Numbers dtype, std::int64_t bytes) const;
  [[nodiscard]] double sums_s() const;
  [[nodiscard]] double control_s() const;
  /// Seconds to copy `bytes` of each rank in memory; none if it was not measured.
  [[nodiscard]] std::optional<double> copy_s(std::int64_t bytes, std::int64_t ranks_on_host) const;
  /// The worst of the parts.
  [[nodiscard]] Sharing sharing() const;

 private:
  struct Part {
    const Link* link = nullptr;
    std::int64_t measured = 2, planned = 2;  ///< participants: ranks or hosts
    double bytes = 1, crowding = 1;          ///< factors of bytes and seconds (rule 4)
  };

  /// Returns whether there is one.
  bool add(const Machine& machine, const Wire& wire);
  [[nodiscard]] double exchange(double Link::*seconds) const;

  std::vector<Part> parts_;
  std::string missing_;
  bool extrapolated_ = false;
};

}  // namespace trireme::plan
