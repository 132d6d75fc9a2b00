// SPDX-License-Identifier: Apache-2.0
#include "train/stop.hpp"

#include <algorithm>
#include <ctime>

namespace trireme::train {

SignalScope::SignalScope() {
  sigemptyset(&watched_);
  for (const int number : {SIGUSR1, SIGUSR2, SIGTERM}) sigaddset(&watched_, number);
  pthread_sigmask(SIG_BLOCK, &watched_, &previous_);
}

SignalScope::~SignalScope() {
  static_cast<void>(take());  // what arrived last must not strike when the mask goes back
  pthread_sigmask(SIG_SETMASK, &previous_, nullptr);
}

Requests SignalScope::take() {
  Requests taken;
  constexpr timespec at_once{};
  for (int number = 0; (number = sigtimedwait(&watched_, nullptr, &at_once)) > 0;)
    if (number == SIGUSR1)
      taken.checkpoint = 1;
    else
      stop_ = true;
  taken.stop = stop_ ? 1 : 0;
  return taken;
}

void Walltime::step_took(double seconds) {
  slowest_step_ = std::max(slowest_step_, seconds);
}

void Walltime::checkpoint_took(double seconds) {
  slowest_checkpoint_ = std::max(slowest_checkpoint_, seconds);
}

bool Walltime::ends(double now) const {
  return limit_seconds_ > 0 &&
         now - started_at_ + 1.5 * (slowest_step_ + slowest_checkpoint_) >= limit_seconds_;
}

}  // namespace trireme::train
