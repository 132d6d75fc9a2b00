// SPDX-License-Identifier: Apache-2.0
#include "train/stop.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace trireme::train {
namespace {

// A handler can reach nothing but objects of static lifetime.
volatile std::sig_atomic_t checkpoint_asked =
    0;  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)
volatile std::sig_atomic_t stop_asked =
    0;  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)

constexpr std::array<int, 3> signals{SIGUSR1, SIGUSR2, SIGTERM};

void on_signal(int number) {
  if (number == SIGUSR1)
    checkpoint_asked = 1;
  else
    stop_asked = 1;
}

}  // namespace

SignalScope::SignalScope() {
  checkpoint_asked = 0;
  stop_asked = 0;
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (std::size_t i = 0; i < signals.size(); ++i) sigaction(signals[i], &action, &previous_[i]);
}

SignalScope::~SignalScope() {
  for (std::size_t i = 0; i < signals.size(); ++i) sigaction(signals[i], &previous_[i], nullptr);
}

Requests SignalScope::take() {
  const Requests taken{checkpoint_asked, stop_asked};
  if (taken.checkpoint != 0)
    checkpoint_asked = 0;
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
