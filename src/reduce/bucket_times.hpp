// SPDX-License-Identifier: Apache-2.0
// When a bucket was reduced and gathered, and the events that say so.
//
// Events are made once and recorded again every few steps: sets of them take turns. The times of a
// step are read when the next one may have begun, and those of a gather belong to the step after
// it, so a third step must not touch them yet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/index.hpp"

#include "device/device.hpp"

namespace trireme::reduce {

/// One reduction of one bucket, in seconds of the host's steady clock. Where every micro-step is
/// reduced by itself a step has one in each, else one.
struct ReductionTimes {
  BucketIndex bucket{};
  std::int64_t round = 0;  ///< of the step's reductions of this bucket
  double ready = 0, start = 0, end = 0;
  double wait_begin = 0, waited = 0;  ///< compute waited for it
};

/// One gather of one bucket's parameters. That of a step's update belongs to the step in which
/// compute waited for it: with overlap_parameters that is the next step, whose forward reads the
/// parameters. With shard: parameters a step gathers a bucket up to twice in each micro-step.
struct GatherTimes {
  BucketIndex bucket{};
  double start = 0, end = 0;
  double wait_begin = 0, waited = 0;
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
