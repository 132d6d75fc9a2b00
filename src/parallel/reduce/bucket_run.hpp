// SPDX-License-Identifier: Apache-2.0
// The gradient half of a bucket's states, and what the engine reports of buckets.
//
// The states of a bucket form two halves that overlap in time: the reduction belongs to this step,
// but compute may wait for the gather in the next one. So the gradient half is a Phase here, and
// the parameter store keeps the parameter half.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/view.hpp"
#include "layout/plan.hpp"

#include "reduce/bucket_times.hpp"

namespace trireme::reduce {

/// The part of one bucket that this rank's optimizer updates.
struct OwnedShard {
  BucketIndex bucket{};
  View gradient;   ///< fp32, summed over ranks once waited for; whole bucket when not sharded
  View parameter;  ///< the run's dtype; written by the optimizer
};

/// A gradient element that was NaN or infinite on this rank before its bucket was reduced.
struct NotFinite {
  BucketIndex bucket{};
  ParameterIndex parameter{};
  std::int64_t element = 0;  ///< within the parameter
};

/// The gradient half of a bucket's states.
enum class Phase : std::uint8_t { filling, ready, reducing, shard_ready, updated };

inline const char* name(Phase phase) {
  constexpr const char* names[] = {"filling", "ready", "reducing", "shard_ready", "updated"};
  return names[static_cast<std::size_t>(phase)];
}

struct ReductionEvents {
  EventPtr ready, start, end, wait_begin, wait_end;
};

struct BucketRun {
  std::array<std::vector<ReductionEvents>, event_sets> reductions;  // one per round
  std::size_t num_pending = 0;    // parameters not yet reported ready
  std::size_t reduced_round = 0;  // round of the latest reduction
  Phase phase = Phase::updated;
  bool begun = false;   // uses its slot in this round, if buckets share slots
  bool awaits = false;  // compute has not waited for the latest reduction yet
};

}  // namespace trireme::reduce
