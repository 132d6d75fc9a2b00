// SPDX-License-Identifier: Apache-2.0
// Simulates the time of compute and of one queue of collectives that run at the same time.
//
// 1. Collectives run one after another, in the order in which they were enqueued, and never before
//    they were enqueued.
// 2. While a collective runs during compute, compute continues at (1 - compute_lost) of its pace,
//    and the collective takes `stretch` times as long. While compute waits, the collective has its
//    full pace. (0, 1) is a network that takes nothing from compute; (1, 1) is one that stops it,
//    so overlap gains nothing.
// 3. Time passes only in compute(), wait() and block().
#pragma once

#include <cstddef>
#include <vector>

#include "plan/machine.hpp"

namespace trireme::plan {

class Timeline {
 public:
  explicit Timeline(Sharing sharing) : sharing_(sharing) {}

  /// Work that takes this long without communication.
  void compute(double seconds);
  /// Enqueues a collective that takes this long alone. Returns its number.
  std::size_t enqueue(double seconds);
  /// Compute waits for this collective, and so for those before it.
  void wait(std::size_t collective);
  /// Compute waits for something else for this long; collectives continue.
  void block(double seconds);

  [[nodiscard]] double now() const { return now_; }
  /// Time in which compute waited, from the beginning on.
  [[nodiscard]] double exposed() const { return exposed_; }
  /// Time in which a collective ran during compute, from the beginning on.
  [[nodiscard]] double shared() const { return shared_; }

 private:
  /// The running collective does this much of its work.
  void advance(double work);
  void pass_waiting(double seconds);

  Sharing sharing_;
  double now_ = 0, exposed_ = 0, shared_ = 0;
  std::vector<double> left_;  // work of each collective
  std::size_t running_ = 0;   // the first that is not over
};

}  // namespace trireme::plan
