// SPDX-License-Identifier: Apache-2.0
// Ends a long loop on all ranks early when one of them requests it, for example after a signal.
//
//     Interruption interruption(world, wanted);
//     for (std::int64_t round = 0; round < rounds;) {
//       for (std::int64_t n = interruption.rounds(); n > 0 && round < rounds; --n) work(round++);
//       if (round < rounds)
//         interruption.check();
//     }
//
// The ranks exchange their requests about once a second: after each exchange they choose the number
// of rounds until the next one by the time that the slowest rank needed.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <utility>

#include "comm/control/world.hpp"

namespace trireme::comm {

/// Thrown on all ranks. The caller that passes `wanted` catches it.
class Interrupted : public std::exception {
 public:
  [[nodiscard]] const char* what() const noexcept override { return "interrupted"; }
};

/// Whether this rank wants to end. Empty on all ranks: never, and nothing is exchanged.
using Wanted = std::function<bool()>;

class Interruption {
 public:
  Interruption(World& world, Wanted wanted)
      : world_(world),
        wanted_(std::move(wanted)),
        rounds_(wanted_ ? 1 : std::numeric_limits<std::int64_t>::max()) {}

  /// Number of rounds to make before check(); the same on all ranks.
  [[nodiscard]] std::int64_t rounds() const { return rounds_; }
  /// Collective, after rounds(). Throws Interrupted.
  void check() {
    if (!wanted_)
      return;
    const std::int64_t wanted = wanted_() ? 1 : 0;  // first: it may wait for the work
    const auto now = Clock::now();
    std::int64_t request[] = {wanted, std::max<std::int64_t>((now - asked_).count(), 1)};
    asked_ = now;
    world_.max(request);
    if (request[0] > 0)
      throw Interrupted();
    constexpr std::int64_t between = std::chrono::nanoseconds(std::chrono::seconds(1)).count();
    const double wanted_rounds = static_cast<double>(rounds_) * static_cast<double>(between) /
                                 static_cast<double>(request[1]);
    rounds_ =
        static_cast<std::int64_t>(std::clamp(wanted_rounds, 1.0, 2 * static_cast<double>(rounds_)));
  }

 private:
  using Clock = std::chrono::steady_clock;
  World& world_;
  const Wanted wanted_;
  std::int64_t rounds_;
  Clock::time_point asked_ = Clock::now();
};

}  // namespace trireme::comm
