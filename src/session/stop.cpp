// SPDX-License-Identifier: Apache-2.0
#include "session/stop.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <ctime>

namespace trireme::session {

Requests agree(comm::World& world, const Requests& mine) {
  std::int64_t said[] = {mine.checkpoint, mine.stop, mine.writing, mine.unfinished,
                         mine.text_bytes};
  world.sum(said);
  return {said[0], said[1], said[2], said[3], said[4]};
}

SignalScope::SignalScope() {
  sigemptyset(&watched_);
  for (const int number : {SIGUSR1, SIGUSR2, SIGTERM, SIGPIPE, SIGXFSZ})
    sigaddset(&watched_, number);
  pthread_sigmask(SIG_BLOCK, &watched_, &previous_);
}

SignalScope::~SignalScope() {
  static_cast<void>(take());  // a pending signal must not be delivered when the mask is restored
  pthread_sigmask(SIG_SETMASK, &previous_, nullptr);
}

Requests SignalScope::take() {
  Requests taken;
  constexpr timespec at_once{};
  for (int number = 0; (number = sigtimedwait(&watched_, nullptr, &at_once)) > 0;)
    if (number == SIGUSR1)
      taken.checkpoint = 1;
    else if (number != SIGPIPE && number != SIGXFSZ)
      stop_ = true;
  taken.stop = stop_ ? 1 : 0;
  return taken;
}

std::optional<double> slurm_end() {
  const char* text = std::getenv("SLURM_JOB_END_TIME");  // NOLINT(concurrency-mt-unsafe)
  if (text == nullptr)
    return std::nullopt;
  double seconds = 0;
  const char* const end = text + std::strlen(text);
  const auto [rest, problem] = std::from_chars(text, end, seconds);
  // Slurm gives 0 or the largest number where there is no limit.
  if (problem != std::errc() || rest != end || seconds <= 0 || seconds >= 4e9)
    return std::nullopt;
  return seconds;
}

void Walltime::step_took(double seconds) {
  slowest_step_ = std::max(slowest_step_, seconds);
}

void Walltime::checkpoint_took(double seconds) {
  slowest_checkpoint_ = std::max(slowest_checkpoint_, seconds);
}

bool Walltime::ends(double now, bool writing) const {
  const double checkpoint = slowest_checkpoint_ > 0 ? slowest_checkpoint_ : expected_checkpoint_;
  return deadline_ && now + 1.5 * (slowest_step_ + (writing ? 2 : 1) * checkpoint) >= *deadline_;
}

}  // namespace trireme::session
