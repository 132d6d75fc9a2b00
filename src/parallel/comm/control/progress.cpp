// SPDX-License-Identifier: Apache-2.0
#include "comm/control/progress.hpp"

#include <algorithm>
#include <thread>

#include "base/error.hpp"

namespace trireme::comm {
namespace {

constexpr int spin_polls = 50;
/// Source: sleeps of 200 us overlap communication with compute better than 50 us or spinning (2
/// ranks x 2 threads on 2 cores, 2 Gbit/s link: 92 ms against 105 and 103, for 80 ms of compute).
constexpr int shortest_sleep_us = 20;
/// Source: 300 instead of 200 us: steps of 0.98 at 1 Gbit/s (4 pairs), 1.00 at 1.57 (5 pairs).
constexpr int longest_sleep_us = 300;
/// Spinning is skipped from the first estimate on, and resumes below the second. Linux adds 50 us
/// to each sleep, so a sleep of 50 us ends as late as spinning.
constexpr int sleeps_from_us = 100, spins_below_us = 50;
/// A long wait raises an estimate to at most its double plus this: from 0 to `sleeps_from_us` in
/// four waits.
constexpr int growth_us = 12;
/// If two polls are further apart than this, the process was stopped in between.
constexpr std::chrono::seconds longest_gap{1};

}  // namespace

void UsualWait::ended(int sleeps, int us) {
  if (sleeps == 0)
    estimate_us_ /= 2;
  else if (sleeps == 1)
    estimate_us_ = estimate_us_ * 3 / 4;  // perhaps it slept too long
  else
    estimate_us_ = std::min({us, 2 * estimate_us_ + growth_us, longest_sleep_us});
  sleeps_at_once_ = estimate_us_ >= (sleeps_at_once_ ? spins_below_us : sleeps_from_us);
}

int Backoff::next_us(int longest_us, int at_once_us) {
  ++polls_;
  const int spins = at_once_us > 0 ? 1 : spin_polls;
  if (polls_ < spins)
    return 0;
  const auto now = Clock::now();
  if (!idle_) {
    idle_ = true;
    since_ = now;
  } else if (now - last_ > longest_gap) {
    since_ += now - last_ - longest_gap;
  }
  last_ = now;
  const int doublings = std::min((polls_ - spins) / 4, 10);
  return std::min(std::max(shortest_sleep_us, at_once_us) << doublings, longest_us);
}

int Backoff::waited_us() const {
  if (!idle_)
    return 0;
  const auto waited = std::chrono::ceil<std::chrono::microseconds>(Clock::now() - since_);
  return static_cast<int>(std::min<std::int64_t>(waited.count(), 1'000'000));
}

void Progress::begin(const Collective& collective) {
  watchdog_.check();
  TRIREME_EXPECT(!busy_.exchange(true, std::memory_order_acquire),
                 "{} started while {} is still running", collective.text(),
                 lane_.collective.text());
  watchdog_.enter(lane_, collective);
  renew();
  first_ = true;
}

void Progress::leave() {
  watchdog_.leave(lane_);
  busy_.store(false, std::memory_order_release);
}

void Progress::learn() {
  if (!first_)
    usual_wait_.ended(sleeps_, sleeps_ > 0 ? backoff_.waited_us() : 0);
}

void Progress::pause() {
  polled_ = true;
  const int sleep_us = backoff_.next_us(longest_sleep_us, first_ ? 0 : usual_wait_.sleep_us());
  if (sleep_us == 0)
    return;
  ++sleeps_;
  std::this_thread::sleep_for(std::chrono::microseconds(sleep_us));
  after_sleep();
}

void Progress::after_sleep() {
  watchdog_.check();
  if (backoff_.idle_s() <= watchdog_.deadline_s())
    return;
  waited_s_ += backoff_.idle_s();
  if (watchdog_.check_ranks(lane_, waited_s_, all_were_there_) == Watchdog::Finding::no_progress)
    watchdog_.fail(lane_, waited_s_, "all ranks have entered it, but no data arrives");
  backoff_.reset();
}

}  // namespace trireme::comm
