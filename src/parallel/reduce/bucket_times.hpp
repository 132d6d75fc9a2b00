// SPDX-License-Identifier: Apache-2.0
// The times of a bucket's reductions, gathers and transfers, and the events that measure them.
//
// Events are created once, in three sets that consecutive steps use in rotation. The times of a
// step may be read after the next one has begun, and a gather belongs to the step after it, so the
// next two steps must use other sets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/index.hpp"
#include "device/device.hpp"

namespace trireme::reduce {

/// One reduction of one bucket, in seconds of the host's steady clock. A step has one per bucket,
/// or one per bucket and micro-step with reduce_every: micro_step.
struct ReductionTimes {
  BucketIndex bucket{};
  std::int64_t round = 0;  ///< index among the step's reductions of this bucket
  double ready = 0, start = 0, end = 0;
  double wait_begin = 0, waited = 0;  ///< compute's wait for the reduction
};

/// One gather of one bucket's parameters. The gather after an update belongs to the step in which
/// compute waited for it: with overlap_parameters this is the next step, whose forward reads the
/// parameters. With shard: parameters a step gathers a bucket up to twice in each micro-step.
struct GatherTimes {
  BucketIndex bucket{};
  double ready = 0;  ///< its parameters were updated and, with shared slots, its slot was free
  double start = 0, end = 0;
  double wait_begin = 0, waited = 0;
};

/// Direction of an optimizer's own transfers: to the rank that works on the data, and back.
enum class Direction : std::uint8_t { send, send_back };

/// One transfer of a bucket's data (transfers.hpp).
struct TransferTimes {
  BucketIndex bucket{};
  Direction direction = Direction::send;
  double start = 0, end = 0;
  double wait_begin = 0, waited = 0;
};

using EventPtr = std::unique_ptr<device::Event>;

inline constexpr std::size_t event_sets = 3;
/// The set of the step with this number.
constexpr std::size_t event_set_of(std::int64_t step) {
  return static_cast<std::size_t>(step) % event_sets;
}

/// The event's time. Waits until the event is reached.
inline double seconds_of(const device::Event& event) {
  if (!event.reached())
    event.wait();
  return event.seconds();
}

struct StepTimes {
  std::span<const ReductionTimes> reductions;  ///< by bucket, then in their order
  std::span<const GatherTimes> gathers;        ///< likewise
  std::span<const TransferTimes> transfers;    ///< by direction, then in the order of set_sender()
  /// Seconds of the step in which compute waited for the network. Waits between steps (when an
  /// evaluation reads the parameters first) are in `gathers` only.
  double exposed_s = 0;
};

}  // namespace trireme::reduce
