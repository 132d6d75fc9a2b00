// SPDX-License-Identifier: Apache-2.0
// When things happened to a bucket, and the events that say so.
//
// Events are made once and recorded again every few steps: sets of them take turns. The times of a
// step are read when the next one may have begun, and those of a gather belong to the step after
// it, so a third step must not touch them yet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "device/device.hpp"

namespace trireme::reduce {

/// When things happened to one bucket in one step, in seconds of the host's steady clock.
///
/// The gather of a step's update belongs to the step in which compute waited for it: with
/// overlap_parameters that is the next step, whose forward reads the parameters. With shard:
/// parameters a step gathers a bucket several times, and times are those of the last one. Zero where
/// nothing happened (unsharded, or the first step).
struct BucketTimes {
  double ready = 0, start = 0, end = 0;  ///< gradient path
  double wait_begin = 0, waited = 0;     ///< compute waited for this bucket's reductions; with
                                         ///< one per micro-step the other times are the last one's
  double gather_start = 0, gather_end = 0;
  double gather_wait_begin = 0, gather_waited = 0;  ///< compute waited for its parameters;
                                                    ///< the sum of all gathers

  [[nodiscard]] bool reduced() const { return end > 0; }
  [[nodiscard]] bool gathered() const { return gather_end > 0; }
};

using EventPtr = std::unique_ptr<device::Event>;

/// Sets of events that take turns.
inline constexpr std::size_t turns = 3;
/// Of the step with this number.
constexpr std::size_t turn_of(std::int64_t step) {
  return static_cast<std::size_t>(step) % turns;
}

/// Waits for the event where it has not been reached.
inline double seconds_of(const device::Event& event) {
  if (!event.reached())
    event.wait();
  return event.seconds();
}

}  // namespace trireme::reduce
