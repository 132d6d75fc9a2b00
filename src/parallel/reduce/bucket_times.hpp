// SPDX-License-Identifier: Apache-2.0
// The times of a bucket's reductions, gathers and transfers, and the events that measure them.
//
// Events are created once, in three sets that consecutive steps use in rotation. The times of a
// step may be read after the next one has begun, and a gather belongs to the step after it, so the
// next two steps must use other sets.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/index.hpp"
#include "base/key.hpp"
#include "base/view.hpp"
#include "device/device.hpp"
#include "layout/plan.hpp"

#include "comm/collective/transfer.hpp"

namespace trireme::reduce {

/// The collective of one bucket, in seconds of the host's steady clock.
struct BucketTimes {
  BucketIndex bucket{};
  double ready = 0;  ///< its data were written and, with shared slots, its slot was free
  double start = 0, end = 0;
  double wait_begin = 0, waited = 0;  ///< compute's wait for the collective
};

/// One reduction. A step has one per bucket, or one per bucket and micro-step with reduce_every:
/// micro_step.
struct ReductionTimes : BucketTimes {
  std::int64_t round = 0;  ///< index among the step's reductions of this bucket
};

/// One gather of one bucket's parameters. The gather after an update belongs to the step in which
/// compute waited for it: with overlap_parameters this is the next step, whose forward reads the
/// parameters. With shard: parameters a step gathers a bucket up to twice in each micro-step.
using GatherTimes = BucketTimes;

using comm::Direction;

/// One transfer of a bucket's data (transfers.hpp): to the rank that works on it, or back.
struct TransferTimes : BucketTimes {
  Direction direction = Direction::send;
};

using EventPtr = std::unique_ptr<device::Event>;

inline constexpr std::size_t event_sets = 3;
constexpr std::size_t event_set_of(std::int64_t step) {
  return static_cast<std::size_t>(step) % event_sets;
}

/// The event's time. Waits until the event is reached.
inline double seconds_of(const device::Event& event) {
  if (!event.reached())
    event.wait();
  return event.seconds();
}

struct BucketEvents {
  EventPtr ready, start, end, wait_begin, wait_end;

  void make(device::Device& device) {
    for (EventPtr* event : {&ready, &start, &end, &wait_begin, &wait_end})
      *event = device.make_event();
  }
  void await_on(device::Stream& compute) const {
    compute.record(*wait_begin);
    compute.wait(*end);
    compute.record(*wait_end);
  }
  /// Waits until all events are reached.
  [[nodiscard]] BucketTimes times(BucketIndex bucket) const {
    const double waits = seconds_of(*wait_begin);
    return {bucket, seconds_of(*ready),           seconds_of(*start), seconds_of(*end),
            waits,  seconds_of(*wait_end) - waits};
  }
};

struct StepTimes {
  std::span<const ReductionTimes> reductions;  ///< by bucket, then in their order
  std::span<const GatherTimes> gathers;        ///< likewise
  std::span<const TransferTimes> transfers;    ///< by direction, then in the order of set_sender()
  /// Seconds of the step in which compute waited for the network. Waits between steps (when an
  /// evaluation reads the parameters first) are in `gathers` only.
  double exposed_s = 0;
};

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

/// The gradient half of a bucket's states. The parameter store keeps the other half, which overlaps
/// in time: compute may wait for a gather in the next step.
enum class Phase : std::uint8_t { filling, ready, reducing, shard_ready, updated };

struct BucketRun {
  std::array<std::vector<BucketEvents>, event_sets> reductions;  // one per round
  std::size_t num_pending = 0;    // parameters not yet reported ready
  std::size_t reduced_round = 0;  // round of the latest reduction
  Phase phase = Phase::updated;
  bool begun = false;   // uses its slot in this round, if buckets share slots
  bool awaits = false;  // compute has not waited for the latest reduction yet
};

}  // namespace trireme::reduce
