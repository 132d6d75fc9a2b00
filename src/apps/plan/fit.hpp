// SPDX-License-Identifier: Apache-2.0
// The straight line through the measured times of a collective: seconds = latency + bytes x
// seconds_per_byte (Hockney, "The communication challenge for MPP", 1994). It minimizes the squares
// of the relative errors, so a small bucket counts as much as a large one.
//
// Times for one number of ranks give those for another, because a collective of n ranks is n - 1
// rounds, in each of which a rank passes a shard on (ring, exchange and reading from peers alike):
//
//   T(N, B) = (N - 1) h(B / N),  h(x) = T(n, n x) / (n - 1)
//
// For a straight line, this is 2(N - 1) latencies and 2(N - 1)/N of the bytes for an all-reduce.
#pragma once

#include <cstdint>
#include <span>

#include "plan/machine.hpp"

namespace trireme::plan {

struct Line {
  double latency_s = 0;
  double seconds_per_byte = 0;
  double residual = 0;  ///< root mean square of relative errors
};

/// Neither is negative: where the best line has a negative part, the best one without that part is
/// taken. Requires: at least one point, times above 0.
Line fit_line(std::span<const Point> points);

/// At the ranks of the measurement: between two measured sizes straight from one to the other;
/// below the least of them from the fit's latency on, above the largest at the fit's seconds per
/// byte.
double measured_seconds(const Collective& collective, double bytes);

/// The same on `planned` ranks, where it was measured on `measured`. Requires: measured >= 2.
double seconds_on(const Collective& collective,
                  double bytes,
                  std::int64_t measured,
                  std::int64_t planned);

}  // namespace trireme::plan
